#include "worker/model/init_config.h"

#include <nlohmann/json.hpp>

namespace deltafill::worker {
namespace {

using nlohmann::ordered_json;

// In the place of the sizes that only models with latent attention have.
void AddLatentAttention(const ModelConfig& config, ordered_json* json) {
  if (!config.HasLatentAttention()) return;
  const LatentAttentionConfig& latent = config.latent;
  json->update({{"q_lora_rank", nullptr},
                {"kv_lora_rank", latent.rank},
                {"qk_nope_head_dim", latent.nope_dim},
                {"qk_rope_head_dim", latent.rope_dim},
                {"v_head_dim", latent.value_dim},
                {"mla_use_nope", true}});
}

void AddExperts(const ModelConfig& config, ordered_json* json) {
  if (!config.HasExperts()) return;
  const ExpertsConfig& experts = config.experts;
  json->update({{"num_experts", experts.count},
                {"num_experts_per_token", experts.per_token},
                {"num_shared_experts", experts.shared},
                {"moe_intermediate_size", experts.width},
                {"moe_layer_freq", 1},
                {"moe_renormalize", experts.renormalize},
                {"moe_router_activation_func", "sigmoid"},
                {"routed_scaling_factor", experts.routed_scale},
                {"use_grouped_topk", true},
                {"num_expert_group", 1},
                {"topk_group", 1}});
}

}  // namespace

std::string InitialConfigText(const ModelConfig& config) {
  ordered_json attention_layers = ordered_json::array();
  ordered_json kda_layers = ordered_json::array();
  size_t first_mixture = config.layers.size();
  for (size_t layer = config.layers.size(); layer-- > 0;) {
    if (config.layers[layer].mlp == MlpKind::kMixtureOfExperts) first_mixture = layer;
  }
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const bool attends = config.layers[layer].mixer == MixerKind::kLatentAttention;
    (attends ? attention_layers : kda_layers).push_back(layer + 1);
  }
  const int64_t heads = config.HasLatentAttention() ? config.latent.heads : config.kda_heads;
  ordered_json json = {
      {"architectures", {"KimiLinearForCausalLM"}},
      {"model_type", config.model_type},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.layers.size()},
      {"num_attention_heads", heads},
      {"num_key_value_heads", heads},
      {"hidden_act", "silu"},
      {"rms_norm_eps", config.rms_norm_eps},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"first_k_dense_replace", first_mixture},
  };
  AddLatentAttention(config, &json);
  AddExperts(config, &json);
  json.update({{"linear_attn_config",
                {{"full_attn_layers", attention_layers},
                 {"kda_layers", kda_layers},
                 {"num_heads", config.kda_heads},
                 {"head_dim", config.kda_head_dim},
                 {"short_conv_kernel_size", config.conv_kernel_size}}},
               {"model_max_length", config.position_max},
               {"bos_token_id", kInitBosId},
               {"eos_token_id", config.eos_ids.front()},
               {"pad_token_id", kInitPadId},
               {"dtype", "bfloat16"},
               {"use_cache", config.HasLatentAttention()}});
  return json.dump(2) + "\n";
}

}  // namespace deltafill::worker
