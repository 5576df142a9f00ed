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
};

constexpr PresetSizes kPresets[] = {
    // A million tokens take about a minute on two cores.
    {"tiny", 260, 128, 256, 2, 2, 64},
    {"small", 4096, 512, 1536, 4, 4, 128},
    {"dense-1b", 32000, 2048, 5632, 24, 16, 128},
};

}  // namespace

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const PresetSizes& sizes : kPresets) names.push_back(sizes.name);
  return names;
}

absl::StatusOr<ModelPreset> FindModelPreset(std::string_view name) {
  for (const PresetSizes& sizes : kPresets) {
    if (name != sizes.name) continue;
    ModelConfig config;
    config.model_type = "kimi_linear";
    config.vocab_size = sizes.vocabulary;
    config.hidden_size = sizes.hidden;
    config.intermediate_size = sizes.intermediate;
    config.kda_heads = sizes.heads;
    config.kda_head_dim = sizes.head_dim;
    config.position_max = int64_t{1} << 22;
    config.eos_ids = {kEosId};
    config.layers.resize(static_cast<size_t>(sizes.layers));
    return ModelPreset{sizes.name, config};
  }
  return absl::InvalidArgumentError(absl::StrCat("preset '", std::string(name),
                                                 "': must be one of ",
                                                 absl::StrJoin(ModelPresetNames(), ", ")));
}

}  // namespace deltafill::worker
