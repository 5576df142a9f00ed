// What config.json says of a model, validated.
#ifndef DELTAFILL_WORKER_MODEL_CONFIG_H_
#define DELTAFILL_WORKER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::worker {

enum class MixerKind : uint8_t { kKda, kLatentAttention };  // the sequence mixer of a layer
enum class MlpKind : uint8_t { kDense, kMixtureOfExperts };
enum class KdaGate : uint8_t { kSoftplus, kLowerBound };

struct LayerConfig {
  MixerKind mixer = MixerKind::kKda;
  MlpKind mlp = MlpKind::kDense;
};

// model_type "kimi_linear". Names follow config.json.
struct ModelConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t kda_heads = 0;     // linear_attn_config.num_heads
  int64_t kda_head_dim = 0;  // linear_attn_config.head_dim: K and V
  int64_t conv_kernel_size = 4;
  KdaGate gate = KdaGate::kSoftplus;
  double gate_lower_bound = -5.0;  // kLowerBound only
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  int64_t position_max = 0;  // model_max_length or max_position_embeddings; 0: no limit
  std::vector<uint32_t> eos_ids;
  std::vector<LayerConfig> layers;
};

// INVALID_ARGUMENT naming the key and its limit. Never crashes on any bytes.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CONFIG_H_
