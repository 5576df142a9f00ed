#include "worker/model/config.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/config_limits.h"
#include "worker/model/status_steps.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

using nlohmann::json;

absl::Status Fault(const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", key, " ", what));
}

// One JSON object and the name its keys are reported under.
struct Section {
  const json& object;
  std::string prefix;

  // nullptr if the key is absent or null.
  const json* Find(const std::string& key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string Name(const std::string& key) const { return prefix + key; }
};

bool IsIntegerIn(const json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number <= static_cast<uint64_t>(high) && static_cast<int64_t>(number) >= low;
  }
  const int64_t number = value.get<int64_t>();
  return number >= low && number <= high;
}

absl::Status ReadInteger(const Section& section, const std::string& key, int64_t low, int64_t high,
                         int64_t* out) {
  const json* value = section.Find(key);
  if (value == nullptr) return Fault(section.Name(key), "is missing");
  if (!IsIntegerIn(*value, low, high)) {
    return Fault(section.Name(key), absl::StrCat("must be an integer in [", low, ", ", high, "]"));
  }
  *out = value->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadOptionalInteger(const Section& section, const std::string& key, int64_t low,
                                 int64_t high, int64_t* out) {
  if (section.Find(key) == nullptr) return absl::OkStatus();
  return ReadInteger(section, key, low, high, out);
}

absl::Status ReadOptionalBool(const Section& section, const std::string& key, bool* out) {
  const json* value = section.Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return Fault(section.Name(key), "must be true or false");
  *out = value->get<bool>();
  return absl::OkStatus();
}

// 1-based layer numbers, as the public configurations have them.
absl::Status ReadLayerSet(const Section& section, const std::string& key, int64_t layers,
                          std::set<int64_t>* out) {
  const json* value = section.Find(key);
  if (value == nullptr) return absl::OkStatus();
  const std::string limit =
      absl::StrCat("must be a list of distinct integers in [1, ", layers, "]");
  if (!value->is_array()) return Fault(section.Name(key), limit);
  for (const json& layer : *value) {
    if (!IsIntegerIn(layer, 1, layers) || !out->insert(layer.get<int64_t>()).second) {
      return Fault(section.Name(key), limit);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadEosIds(const Section& root, ModelConfig* config) {
  const json* value = root.Find("eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  const std::string limit =
      absl::StrCat("must be a token id below vocab_size (", config->vocab_size,
                   ") or a list of at most ", kEosIdsMax, " of them");
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kEosIdsMax) return Fault("eos_token_id", limit);
  for (const json& id : list) {
    if (!IsIntegerIn(id, 0, config->vocab_size - 1)) return Fault("eos_token_id", limit);
    config->eos_ids.push_back(id.get<uint32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadGate(const Section& linear, ModelConfig* config) {
  bool safe_gate = false;
  DELTAFILL_TRY(ReadOptionalBool(linear, "safe_gate", &safe_gate));
  const json* bound = linear.Find("gate_lower_bound");
  if (bound != nullptr) {
    if (!bound->is_number() || !(bound->get<double>() >= -5.0 && bound->get<double>() < 0.0)) {
      return Fault(linear.Name("gate_lower_bound"), "must be a number in [-5, 0)");
    }
    config->gate_lower_bound = bound->get<double>();
  }
  config->gate = bound != nullptr || safe_gate ? KdaGate::kLowerBound : KdaGate::kSoftplus;
  bool full_rank = false;
  DELTAFILL_TRY(ReadOptionalBool(linear, "use_full_rank_gate", &full_rank));
  if (full_rank)
    return Fault(linear.Name("use_full_rank_gate"), "is true; only false is supported");
  return absl::OkStatus();
}

absl::Status ReadHeads(const Section& linear, ModelConfig* config) {
  DELTAFILL_TRY(ReadInteger(linear, "num_heads", 1, kHeadsMax, &config->kda_heads));
  DELTAFILL_TRY(ReadInteger(linear, "head_dim", 1, 128, &config->kda_head_dim));
  if (config->kda_head_dim != 32 && config->kda_head_dim != 64 && config->kda_head_dim != 128) {
    return Fault(linear.Name("head_dim"),
                 absl::StrCat("is ", config->kda_head_dim, "; it must be 32, 64 or 128"));
  }
  DELTAFILL_TRY(
      ReadOptionalInteger(linear, "short_conv_kernel_size", 1, 64, &config->conv_kernel_size));
  if (config->conv_kernel_size != 4) {
    return Fault(linear.Name("short_conv_kernel_size"),
                 absl::StrCat("is ", config->conv_kernel_size, "; only 4 is supported"));
  }
  return absl::OkStatus();
}

absl::Status ReadMixerKinds(const Section& linear, ModelConfig* config) {
  const int64_t layers = static_cast<int64_t>(config->layers.size());
  std::set<int64_t> full;
  std::set<int64_t> kda;
  DELTAFILL_TRY(ReadLayerSet(linear, "full_attn_layers", layers, &full));
  DELTAFILL_TRY(ReadLayerSet(linear, "kda_layers", layers, &kda));
  const bool kda_listed = linear.Find("kda_layers") != nullptr;
  for (int64_t layer = 1; layer <= layers; ++layer) {
    if (kda_listed && full.count(layer) + kda.count(layer) != 1) {
      return Fault(linear.Name("kda_layers"),
                   absl::StrCat("and full_attn_layers must name layer ", layer, " exactly once"));
    }
    config->layers[static_cast<size_t>(layer - 1)].mixer =
        full.count(layer) > 0 ? MixerKind::kLatentAttention : MixerKind::kKda;
  }
  return absl::OkStatus();
}

// Dense for layers before first_k_dense_replace whatever num_experts says, and where there are no
// experts at all.
absl::Status ReadMlpKinds(const Section& root, ModelConfig* config) {
  int64_t first_dense = 1;
  int64_t experts = 0;
  int64_t frequency = 1;
  DELTAFILL_TRY(ReadOptionalInteger(root, "first_k_dense_replace", 0, kLayersMax, &first_dense));
  DELTAFILL_TRY(ReadOptionalInteger(root, "num_experts", 0, kExpertsMax, &experts));
  DELTAFILL_TRY(ReadOptionalInteger(root, "moe_layer_freq", 1, kLayersMax, &frequency));
  for (int64_t layer = 0; layer < static_cast<int64_t>(config->layers.size()); ++layer) {
    const bool mixture = layer >= first_dense && experts > 0 && layer % frequency == 0;
    config->layers[static_cast<size_t>(layer)].mlp =
        mixture ? MlpKind::kMixtureOfExperts : MlpKind::kDense;
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const Section& root, ModelConfig* config) {
  int64_t layers = 0;
  DELTAFILL_TRY(ReadInteger(root, "vocab_size", 1, kVocabularyMax, &config->vocab_size));
  DELTAFILL_TRY(ReadInteger(root, "hidden_size", 1, kHiddenMax, &config->hidden_size));
  DELTAFILL_TRY(
      ReadInteger(root, "intermediate_size", 1, kIntermediateMax, &config->intermediate_size));
  DELTAFILL_TRY(ReadInteger(root, "num_hidden_layers", 1, kLayersMax, &layers));
  config->layers.resize(static_cast<size_t>(layers));
  for (const char* key : {"max_position_embeddings", "model_max_length"}) {
    DELTAFILL_TRY(ReadOptionalInteger(root, key, 1, std::numeric_limits<int64_t>::max(),
                                      &config->position_max));
  }
  const json* eps = root.Find("rms_norm_eps");
  if (eps != nullptr) {
    if (!eps->is_number() || !(eps->get<double>() > 0.0 && eps->get<double>() <= 0.1)) {
      return Fault("rms_norm_eps", "must be a number in (0, 0.1]");
    }
    config->rms_norm_eps = eps->get<double>();
  }
  DELTAFILL_TRY(ReadOptionalBool(root, "tie_word_embeddings", &config->tie_word_embeddings));
  const json* activation = root.Find("hidden_act");
  if (activation != nullptr && *activation != "silu") {
    return Fault("hidden_act", "must be \"silu\"");
  }
  if (root.Find("quantization_config") != nullptr) {
    return Fault("quantization_config", "is set; quantised checkpoints are not supported");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  if (text.size() > kConfigBytesMax) {
    return Fault("size", absl::StrCat("is over ", kConfigBytesMax, " bytes"));
  }
  auto document = ParseStrictJson(text);
  if (!document.ok()) return Fault("text:", std::string(document.status().message()));
  if (!document->is_object()) return Fault("text:", "must be one JSON object");
  const Section root{*document, ""};

  ModelConfig config;
  const json* type = root.Find("model_type");
  if (type == nullptr) return Fault("model_type", "is missing");
  if (!type->is_string() || *type != "kimi_linear") {
    return Fault("model_type", "must be \"kimi_linear\"; no other family is supported");
  }
  config.model_type = type->get<std::string>();
  DELTAFILL_TRY(ReadNumbers(root, &config));
  DELTAFILL_TRY(ReadEosIds(root, &config));
  const json* linear_object = root.Find("linear_attn_config");
  if (linear_object == nullptr || !linear_object->is_object()) {
    return Fault("linear_attn_config", "must be an object");
  }
  const Section linear{*linear_object, "linear_attn_config."};
  DELTAFILL_TRY(ReadHeads(linear, &config));
  DELTAFILL_TRY(ReadGate(linear, &config));
  DELTAFILL_TRY(ReadMixerKinds(linear, &config));
  DELTAFILL_TRY(ReadMlpKinds(root, &config));
  return config;
}

}  // namespace deltafill::worker
