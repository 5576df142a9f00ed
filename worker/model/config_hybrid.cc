// config.json of Kimi-Linear: latent attention, experts, and this project's switches.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "worker/model/config_family.h"
#include "worker/model/config_limits.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

using nlohmann::json;

absl::Status ReadLatentAttention(const ConfigSection& root, ModelConfig* config) {
  LatentAttentionConfig& latent = config->latent;
  DELTAFILL_TRY(root.ReadInteger("num_attention_heads", 1, kHeadsMax, &latent.heads));
  DELTAFILL_TRY(root.ReadInteger("qk_nope_head_dim", 1, kLatentHeadDimMax, &latent.nope_dim));
  DELTAFILL_TRY(root.ReadInteger("qk_rope_head_dim", 0, kLatentHeadDimMax, &latent.rope_dim));
  DELTAFILL_TRY(root.ReadInteger("v_head_dim", 1, kLatentHeadDimMax, &latent.value_dim));
  DELTAFILL_TRY(root.ReadInteger("kv_lora_rank", 1, kLatentRankMax, &latent.rank));
  latent.norm_eps = config->rms_norm_eps;
  int64_t key_heads = latent.heads;
  DELTAFILL_TRY(root.ReadOptionalInteger("num_key_value_heads", 1, kHeadsMax, &key_heads));
  if (key_heads != latent.heads) {
    return ConfigFault(
        "num_key_value_heads",
        absl::StrCat("is ", key_heads, "; it must be num_attention_heads (", latent.heads, ")"));
  }
  DELTAFILL_TRY(root.RequireAbsent("q_lora_rank"));
  DELTAFILL_TRY(root.RequireBool("attention_bias", false));
  // Configurations that transformers' class wrote may lack it: that class has no rotation at all.
  if (root.Find("mla_use_nope") == nullptr && root.Find("layer_types") == nullptr) {
    return ConfigFault("mla_use_nope", "is missing; only true is supported");
  }
  return root.RequireBool("mla_use_nope", true);
}

absl::Status ReadExperts(const ConfigSection& root, ModelConfig* config) {
  ExpertsConfig& experts = config->experts;
  DELTAFILL_TRY(root.ReadInteger("num_experts", 1, kExpertsMax, &experts.count));
  DELTAFILL_TRY(root.ReadInteger("num_experts_per_token", 1, experts.count, &experts.per_token));
  DELTAFILL_TRY(root.ReadInteger("moe_intermediate_size", 1, kIntermediateMax, &experts.width));
  DELTAFILL_TRY(root.ReadInteger("num_shared_experts", 0, kSharedExpertsMax, &experts.shared));
  DELTAFILL_TRY(root.ReadNumber("routed_scaling_factor", 0.0, 1e3, false, &experts.routed_scale));
  DELTAFILL_TRY(root.ReadOptionalBool("moe_renormalize", &experts.renormalize));
  DELTAFILL_TRY(root.RequireText("moe_router_activation_func", "sigmoid"));
  bool grouped = true;  // with one group the same as not grouped
  DELTAFILL_TRY(root.ReadOptionalBool("use_grouped_topk", &grouped));
  for (const char* key : {"num_expert_group", "topk_group"}) {
    int64_t groups = 1;
    DELTAFILL_TRY(root.ReadOptionalInteger(key, 1, kExpertsMax, &groups));
    if (grouped && groups != 1) {
      return ConfigFault(key, absl::StrCat("is ", groups, "; only 1 is supported"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSwitches(const ConfigSection& root, ModelConfig* config) {
  const json* object = root.Find("deltafill");
  if (object == nullptr) return absl::OkStatus();
  if (!object->is_object()) return ConfigFault("deltafill", "must be an object");
  // A switch whose name is mistyped must not be taken for its default.
  for (const auto& [key, value] : object->items()) {
    if (key != "kv_a_layernorm_eps" && key != "biased_expert_weights") {
      return ConfigFault("deltafill." + key, "is no switch that is known");
    }
  }
  const ConfigSection switches{*object, "deltafill."};
  DELTAFILL_TRY(
      switches.ReadOptionalNumber("kv_a_layernorm_eps", 0.0, 0.1, false, &config->latent.norm_eps));
  return switches.ReadOptionalBool("biased_expert_weights", &config->experts.biased_weights);
}

}  // namespace deltafill::worker
