#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/model/init.h"

namespace deltafill::worker {
namespace {

constexpr uint32_t kEosId = 257;  // of the bytes tokenizer that init writes

struct PresetSizes {
  const char* name;
  int64_t vocabulary;  // at least 256 bytes and 3 special tokens
  int64_t hidden;
  int64_t intermediate;
  int64_t layers;
  int64_t heads;
  int64_t head_dim;
  std::set<int64_t> attention_layers;  // 1-based
  LatentAttentionConfig latent;
  ExpertsConfig experts;  // in every layer but the first
};

const std::vector<PresetSizes>& Presets() {
  static const auto* presets = new std::vector<PresetSizes>{
      // A million tokens take about a minute on two cores.
      {"tiny", 260, 128, 256, 2, 2, 64, {}, {}, {}},
      {"small", 4096, 512, 1536, 4, 4, 128, {}, {}, {}},
      {"dense-1b", 32000, 2048, 5632, 24, 16, 128, {}, {}, {}},
      // Every kind of layer. Widths that are no powers of two, as any model may have them, but
      // multiples of 8, which the CUDA backend needs.
      {"kimi-linear-tiny",
       260,
       128,
       256,
       6,
       2,
       64,
       {3, 6},
       {.heads = 4, .nope_dim = 24, .rope_dim = 8, .value_dim = 24, .rank = 40, .norm_eps = 1e-5},
       {.count = 8, .per_token = 2, .width = 48, .shared = 1, .routed_scale = 2.446}},
      // The shape of moonshotai/Kimi-Linear-48B-A3B: 98 GB.
      {"kimi-linear-48b",
       163840,
       2304,
       9216,
       27,
       32,
       128,
       {4, 8, 12, 16, 20, 24, 27},
       {.heads = 32,
        .nope_dim = 128,
        .rope_dim = 64,
        .value_dim = 128,
        .rank = 512,
        .norm_eps = 1e-5},
       {.count = 256, .per_token = 8, .width = 1024, .shared = 1, .routed_scale = 2.446}},
  };
  return *presets;
}

}  // namespace

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const PresetSizes& sizes : Presets()) names.push_back(sizes.name);
  return names;
}

absl::StatusOr<ModelPreset> FindModelPreset(std::string_view name) {
  for (const PresetSizes& sizes : Presets()) {
    if (name != sizes.name) continue;
    ModelConfig config;
    config.model_type = "kimi_linear";
    config.vocab_size = sizes.vocabulary;
    config.hidden_size = sizes.hidden;
    config.intermediate_size = sizes.intermediate;
    config.kda_heads = sizes.heads;
    config.kda_head_dim = sizes.head_dim;
    config.kda_value_heads = sizes.heads;
    config.kda_value_head_dim = sizes.head_dim;
    config.position_max = int64_t{1} << 22;
    config.eos_ids = {kEosId};
    config.latent = sizes.latent;
    config.experts = sizes.experts;
    config.layers.resize(static_cast<size_t>(sizes.layers));
    for (size_t layer = 0; layer < config.layers.size(); ++layer) {
      if (sizes.attention_layers.count(static_cast<int64_t>(layer) + 1) > 0) {
        config.layers[layer].mixer = MixerKind::kLatentAttention;
      }
      if (sizes.experts.count > 0 && layer > 0) {
        config.layers[layer].mlp = MlpKind::kMixtureOfExperts;
      }
    }
    return ModelPreset{sizes.name, config};
  }
  return absl::InvalidArgumentError(absl::StrCat("preset '", std::string(name),
                                                 "': must be one of ",
                                                 absl::StrJoin(ModelPresetNames(), ", ")));
}

}  // namespace deltafill::worker
