#include "worker/model/config.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/tensor.h"
#include "worker/model/config_family.h"
#include "worker/model/config_limits.h"
#include "worker/model/config_section.h"
#include "worker/model/status_steps.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

using nlohmann::json;

absl::Status ReadFamily(const ConfigSection& root, ModelConfig* config) {
  const json* type = root.Find("model_type");
  if (type == nullptr) return ConfigFault("model_type", "is missing");
  if (*type == "kimi_linear") {
    config->family = ModelFamily::kKimiLinear;
  } else if (*type == "kda") {
    config->family = ModelFamily::kFlaKda;
  } else {
    return ConfigFault("model_type",
                       "must be \"kimi_linear\" or \"kda\"; no other family is supported");
  }
  config->model_type = type->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadSizes(const ConfigSection& root, ModelConfig* config) {
  int64_t layers = 0;
  DELTAFILL_TRY(root.ReadInteger("vocab_size", 1, kVocabularyMax, &config->vocab_size));
  DELTAFILL_TRY(root.ReadInteger("hidden_size", 1, kHiddenMax, &config->hidden_size));
  DELTAFILL_TRY(root.ReadInteger("num_hidden_layers", 1, kLayersMax, &layers));
  config->layers.resize(static_cast<size_t>(layers));
  DELTAFILL_TRY(root.ReadOptionalBool("tie_word_embeddings", &config->tie_word_embeddings));
  if (root.Find("quantization_config") != nullptr) {
    return ConfigFault("quantization_config", "is set; quantised checkpoints are not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadEosIds(const ConfigSection& root, ModelConfig* config) {
  const json* value = root.Find("eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  const std::string limit =
      absl::StrCat("must be a token id below vocab_size (", config->vocab_size,
                   ") or a list of at most ", kEosIdsMax, " of them");
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kEosIdsMax) return ConfigFault("eos_token_id", limit);
  for (const json& id : list) {
    if (!IsIntegerIn(id, 0, config->vocab_size - 1)) return ConfigFault("eos_token_id", limit);
    config->eos_ids.push_back(id.get<uint32_t>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadKdaHeads(const ConfigSection& section, const KdaHeadKeys& keys,
                          ModelConfig* config) {
  DELTAFILL_TRY(section.ReadInteger(keys.heads, 1, kHeadsMax, &config->kda_heads));
  DELTAFILL_TRY(section.ReadInteger(keys.head_dim, 1, 128, &config->kda_head_dim));
  if (config->kda_head_dim != 32 && config->kda_head_dim != 64 && config->kda_head_dim != 128) {
    return ConfigFault(section.Name(keys.head_dim),
                       absl::StrCat("is ", config->kda_head_dim, "; it must be 32, 64 or 128"));
  }
  DELTAFILL_TRY(section.ReadOptionalInteger(keys.conv_size, 1, 64, &config->conv_kernel_size));
  if (config->conv_kernel_size != kernels::kConvKernelSize) {
    return ConfigFault(section.Name(keys.conv_size),
                       absl::StrCat("is ", config->conv_kernel_size, "; only ",
                                    kernels::kConvKernelSize, " is supported"));
  }
  config->kda_value_heads = config->kda_heads;
  config->kda_value_head_dim = config->kda_head_dim;
  return absl::OkStatus();
}

bool ModelConfig::HasLatentAttention() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& layer) {
    return layer.mixer == MixerKind::kLatentAttention;
  });
}

bool ModelConfig::HasExperts() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& layer) {
    return layer.mlp == MlpKind::kMixtureOfExperts;
  });
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  if (text.size() > kConfigBytesMax) {
    return ConfigFault("size", absl::StrCat("is over ", kConfigBytesMax, " bytes"));
  }
  auto document = ParseStrictJson(text);
  if (!document.ok()) return ConfigFault("text:", std::string(document.status().message()));
  if (!document->is_object()) return ConfigFault("text:", "must be one JSON object");
  const ConfigSection root{*document, ""};

  ModelConfig config;
  DELTAFILL_TRY(ReadFamily(root, &config));
  DELTAFILL_TRY(ReadSizes(root, &config));
  DELTAFILL_TRY(ReadEosIds(root, &config));
  if (config.family == ModelFamily::kFlaKda) {
    DELTAFILL_TRY(ReadFlaKda(root, &config));
  } else {
    DELTAFILL_TRY(ReadKimiLinear(root, &config));
  }
  return config;
}

}  // namespace deltafill::worker
