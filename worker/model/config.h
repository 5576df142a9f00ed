// What config.json says of a model, validated.
#ifndef DELTAFILL_WORKER_MODEL_CONFIG_H_
#define DELTAFILL_WORKER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::worker {

enum class ModelFamily : uint8_t {
  kKimiLinear,  // model_type "kimi_linear": KDA and latent attention, dense MLPs and experts
  kFlaKda,      // model_type "kda": flash-linear-attention's own, KDA and dense MLPs only
};
enum class MixerKind : uint8_t { kKda, kLatentAttention };  // the sequence mixer of a layer
enum class MlpKind : uint8_t { kDense, kMixtureOfExperts };
enum class KdaGate : uint8_t { kSoftplus, kLowerBound };

struct LayerConfig {
  MixerKind mixer = MixerKind::kKda;
  MlpKind mlp = MlpKind::kDense;
};

// Of the latent attention layers; zeros if there are none.
struct LatentAttentionConfig {
  int64_t heads = 0;      // num_attention_heads
  int64_t nope_dim = 0;   // qk_nope_head_dim
  int64_t rope_dim = 0;   // qk_rope_head_dim; not rotated (mla_use_nope), may be 0
  int64_t value_dim = 0;  // v_head_dim
  int64_t rank = 0;       // kv_lora_rank
  double norm_eps = 0.0;  // of kv_a_layernorm
};

// Of the layers with a mixture of experts; zeros if there are none.
struct ExpertsConfig {
  int64_t count = 0;        // num_experts
  int64_t per_token = 0;    // num_experts_per_token
  int64_t width = 0;        // moe_intermediate_size
  int64_t shared = 0;       // num_shared_experts, together one MLP of shared * width
  bool renormalize = true;  // moe_renormalize
  bool biased_weights = false;
  double routed_scale = 1.0;  // routed_scaling_factor
};

// Names follow config.json. Both families' public forms are read: Kimi-Linear's with
// linear_attn_config, and the keys that transformers' class writes beside or instead of it
// (layer_types, mlp_layer_types, linear_*), which must agree.
//
// Public implementations of Kimi-Linear differ on two points that change bits. The defaults are
// vLLM's; an object `deltafill` in config.json switches them, and they are part of the model
// fingerprint, so that states of one setting are never resumed under the other:
//
//   "deltafill": {"kv_a_layernorm_eps": 1e-6,       default: rms_norm_eps; transformers has 1e-6
//                 "biased_expert_weights": true}    default: false; true combines the chosen
//                                                   experts with score + correction bias
struct ModelConfig {
  ModelFamily family = ModelFamily::kKimiLinear;
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t kda_heads = 0;           // of q and k
  int64_t kda_head_dim = 0;        // of q and k
  int64_t kda_value_heads = 0;     // a multiple of kda_heads; more than that: grouped values
  int64_t kda_value_head_dim = 0;  // of v
  int64_t conv_kernel_size = 4;
  KdaGate gate = KdaGate::kSoftplus;
  double gate_lower_bound = -5.0;  // kLowerBound only
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  int64_t position_max = 0;  // model_max_length or max_position_embeddings; 0: no limit
  std::vector<uint32_t> eos_ids;
  std::vector<LayerConfig> layers;
  LatentAttentionConfig latent;
  ExpertsConfig experts;

  bool HasLatentAttention() const;
  bool HasExperts() const;
};

// INVALID_ARGUMENT naming the key and its limit. Never crashes on any bytes.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CONFIG_H_
