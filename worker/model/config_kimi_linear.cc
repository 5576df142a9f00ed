// config.json of Kimi-Linear: which layer is of which kind, and KDA's share.
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/model/config_family.h"
#include "worker/model/config_limits.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

using nlohmann::json;

// 1-based layer numbers, as the public configurations have them.
absl::Status ReadLayerSet(const ConfigSection& section, const std::string& key, int64_t layers,
                          std::set<int64_t>* out) {
  const json* value = section.Find(key);
  if (value == nullptr) return absl::OkStatus();
  const std::string limit =
      absl::StrCat("must be a list of distinct integers in [1, ", layers, "]");
  if (!value->is_array()) return ConfigFault(section.Name(key), limit);
  for (const json& layer : *value) {
    if (!IsIntegerIn(layer, 1, layers) || !out->insert(layer.get<int64_t>()).second) {
      return ConfigFault(section.Name(key), limit);
    }
  }
  return absl::OkStatus();
}

// A list of one word a layer, of two words: is_second[i] says which. Empty if the key is absent.
absl::Status ReadLayerWords(const ConfigSection& root, const std::string& key, size_t layers,
                            const char* first, const char* second, std::vector<bool>* is_second) {
  const json* value = root.Find(key);
  if (value == nullptr) return absl::OkStatus();
  const std::string limit =
      absl::StrCat("must be a list of ", layers, " times \"", first, "\" or \"", second, "\"");
  if (!value->is_array() || value->size() != layers) return ConfigFault(root.Name(key), limit);
  for (const json& word : *value) {
    if (word != first && word != second) return ConfigFault(root.Name(key), limit);
    is_second->push_back(word == second);
  }
  return absl::OkStatus();
}

absl::Status ReadGate(const ConfigSection& linear, ModelConfig* config) {
  bool safe_gate = false;
  DELTAFILL_TRY(linear.ReadOptionalBool("safe_gate", &safe_gate));
  const bool bounded = linear.Find("gate_lower_bound") != nullptr;
  DELTAFILL_TRY(
      linear.ReadOptionalNumber("gate_lower_bound", -5.0, 0.0, true, &config->gate_lower_bound));
  config->gate = bounded || safe_gate ? KdaGate::kLowerBound : KdaGate::kSoftplus;
  return linear.RequireBool("use_full_rank_gate", false);
}

// The lists of linear_attn_config, and layer_types, which may stand alone.
absl::Status ReadMixerKinds(const ConfigSection& root, const ConfigSection& linear,
                            ModelConfig* config) {
  const int64_t layers = static_cast<int64_t>(config->layers.size());
  std::set<int64_t> full;
  std::set<int64_t> kda;
  std::vector<bool> is_full;
  DELTAFILL_TRY(ReadLayerSet(linear, "full_attn_layers", layers, &full));
  DELTAFILL_TRY(ReadLayerSet(linear, "kda_layers", layers, &kda));
  DELTAFILL_TRY(ReadLayerWords(root, "layer_types", config->layers.size(), "linear_attention",
                               "full_attention", &is_full));
  const bool kda_listed = linear.Find("kda_layers") != nullptr;
  bool has_kda = false;
  const bool listed = kda_listed || linear.Find("full_attn_layers") != nullptr;
  for (int64_t layer = 1; layer <= layers; ++layer) {
    const size_t index = static_cast<size_t>(layer - 1);
    if (kda_listed && full.count(layer) + kda.count(layer) != 1) {
      return ConfigFault(
          linear.Name("kda_layers"),
          absl::StrCat("and full_attn_layers must name layer ", layer, " exactly once"));
    }
    const bool attends = listed ? full.count(layer) > 0 : !is_full.empty() && is_full[index];
    if (!is_full.empty() && attends != is_full[index]) {
      return ConfigFault("layer_types", absl::StrCat("and ", linear.Name("full_attn_layers"),
                                                     " disagree on layer ", layer));
    }
    config->layers[index].mixer = attends ? MixerKind::kLatentAttention : MixerKind::kKda;
    has_kda = has_kda || !attends;
  }
  // A prefix state is a recurrent state first of all.
  if (!has_kda) return ConfigFault(linear.Name("full_attn_layers"), "leave no layer to KDA");
  return absl::OkStatus();
}

// Dense for layers before first_k_dense_replace whatever num_experts says, and where there are no
// experts at all. mlp_layer_types may stand alone.
absl::Status ReadMlpKinds(const ConfigSection& root, ModelConfig* config) {
  int64_t first_dense = 0;
  int64_t experts = 0;
  int64_t frequency = 1;
  std::vector<bool> is_sparse;
  DELTAFILL_TRY(root.ReadOptionalInteger("num_experts", 0, kExpertsMax, &experts));
  DELTAFILL_TRY(root.ReadOptionalInteger("first_k_dense_replace", 0, kLayersMax, &first_dense));
  DELTAFILL_TRY(root.ReadOptionalInteger("moe_layer_freq", 1, kLayersMax, &frequency));
  DELTAFILL_TRY(ReadLayerWords(root, "mlp_layer_types", config->layers.size(), "dense", "sparse",
                               &is_sparse));
  const bool counted = root.Find("first_k_dense_replace") != nullptr;
  // Implementations differ on what its absence means.
  if (experts > 0 && !counted && is_sparse.empty()) {
    return ConfigFault("first_k_dense_replace", "is missing, and num_experts is not 0");
  }
  for (size_t layer = 0; layer < config->layers.size(); ++layer) {
    const int64_t index = static_cast<int64_t>(layer);
    const bool mixture = experts > 0 && (counted ? index >= first_dense && index % frequency == 0
                                                 : is_sparse[layer]);
    if (experts > 0 && !is_sparse.empty() && mixture != is_sparse[layer]) {
      return ConfigFault("mlp_layer_types",
                         absl::StrCat("and first_k_dense_replace disagree on layer ", layer + 1));
    }
    config->layers[layer].mlp = mixture ? MlpKind::kMixtureOfExperts : MlpKind::kDense;
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const ConfigSection& root, ModelConfig* config) {
  DELTAFILL_TRY(
      root.ReadInteger("intermediate_size", 1, kIntermediateMax, &config->intermediate_size));
  for (const char* key : {"max_position_embeddings", "model_max_length"}) {
    DELTAFILL_TRY(root.ReadOptionalInteger(key, 1, std::numeric_limits<int64_t>::max(),
                                           &config->position_max));
  }
  DELTAFILL_TRY(root.ReadOptionalNumber("rms_norm_eps", 0.0, 0.1, false, &config->rms_norm_eps));
  return root.RequireText("hidden_act", "silu");
}

}  // namespace

absl::Status ReadKimiLinear(const ConfigSection& root, ModelConfig* config) {
  DELTAFILL_TRY(ReadNumbers(root, config));
  const json* linear_object = root.Find("linear_attn_config");
  if (linear_object == nullptr && root.Find("linear_num_heads") != nullptr) {
    const json no_object = json::object();
    const ConfigSection linear{no_object, "linear_attn_config."};
    DELTAFILL_TRY(ReadKdaHeads(root,
                               {.heads = "linear_num_heads",
                                .head_dim = "linear_head_dim",
                                .conv_size = "linear_conv_kernel_dim"},
                               config));
    if (root.Find("layer_types") == nullptr) return ConfigFault("layer_types", "is missing");
    DELTAFILL_TRY(ReadMixerKinds(root, linear, config));
  } else {
    if (linear_object == nullptr || !linear_object->is_object()) {
      return ConfigFault("linear_attn_config", "must be an object");
    }
    const ConfigSection linear{*linear_object, "linear_attn_config."};
    DELTAFILL_TRY(ReadKdaHeads(
        linear,
        {.heads = "num_heads", .head_dim = "head_dim", .conv_size = "short_conv_kernel_size"},
        config));
    DELTAFILL_TRY(ReadGate(linear, config));
    DELTAFILL_TRY(ReadMixerKinds(root, linear, config));
  }
  DELTAFILL_TRY(ReadMlpKinds(root, config));
  if (config->HasLatentAttention()) DELTAFILL_TRY(ReadLatentAttention(root, config));
  if (config->HasExperts()) DELTAFILL_TRY(ReadExperts(root, config));
  return ReadSwitches(root, config);
}

}  // namespace deltafill::worker
