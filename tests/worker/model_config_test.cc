// config.json: what is read, and each error by the name of its key.
#include "worker/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "worker/model/fingerprint.h"
#include "worker/model/strict_json.h"

namespace deltafill::test {
using namespace worker;  // what is tested
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// Kimi-Linear's public configuration, made small.
json Valid() {
  return {{"model_type", "kimi_linear"},
          {"vocab_size", 1000},
          {"hidden_size", 256},
          {"intermediate_size", 512},
          {"num_hidden_layers", 4},
          {"first_k_dense_replace", 1},
          {"num_experts", 8},
          {"moe_layer_freq", 1},
          {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true},
          {"model_max_length", 1048576},
          {"eos_token_id", 7},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 6},
          {"kv_lora_rank", 40},
          {"q_lora_rank", nullptr},
          {"qk_nope_head_dim", 24},
          {"qk_rope_head_dim", 8},
          {"v_head_dim", 20},
          {"mla_use_nope", true},
          {"num_experts_per_token", 2},
          {"num_shared_experts", 1},
          {"moe_intermediate_size", 96},
          {"moe_renormalize", false},
          {"moe_router_activation_func", "sigmoid"},
          {"routed_scaling_factor", 2.446},
          {"use_grouped_topk", true},
          {"num_expert_group", 1},
          {"topk_group", 1},
          {"linear_attn_config",
           {{"full_attn_layers", {4}},
            {"kda_layers", {1, 2, 3}},
            {"head_dim", 64},
            {"num_heads", 3},
            {"short_conv_kernel_size", 4}}}};
}

TEST(ModelConfigTest, ReadsThePublicForm) {
  const auto config = ParseModelConfig(Valid().dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocab_size, 1000);
  EXPECT_EQ(config->hidden_size, 256);
  EXPECT_EQ(config->intermediate_size, 512);
  EXPECT_EQ(config->kda_heads, 3);
  EXPECT_EQ(config->kda_head_dim, 64);
  EXPECT_EQ(config->gate, KdaGate::kSoftplus);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->position_max, 1048576);
  EXPECT_THAT(config->eos_ids, ElementsAre(7u));
  ASSERT_EQ(config->layers.size(), 4u);
  EXPECT_EQ(config->layers[2].mixer, MixerKind::kKda);
  EXPECT_EQ(config->layers[3].mixer, MixerKind::kLatentAttention);
  EXPECT_EQ(config->layers[0].mlp, MlpKind::kDense);
  EXPECT_EQ(config->layers[1].mlp, MlpKind::kMixtureOfExperts);
  EXPECT_EQ(config->kda_value_heads, 3);
  EXPECT_EQ(config->kda_value_head_dim, 64);
  EXPECT_EQ(config->latent.heads, 6);
  EXPECT_EQ(config->latent.nope_dim, 24);
  EXPECT_EQ(config->latent.rope_dim, 8);
  EXPECT_EQ(config->latent.value_dim, 20);
  EXPECT_EQ(config->latent.rank, 40);
  EXPECT_EQ(config->latent.norm_eps, 1e-6);
  EXPECT_EQ(config->experts.count, 8);
  EXPECT_EQ(config->experts.per_token, 2);
  EXPECT_EQ(config->experts.width, 96);
  EXPECT_EQ(config->experts.shared, 1);
  EXPECT_EQ(config->experts.routed_scale, 2.446);
  EXPECT_FALSE(config->experts.renormalize);
  EXPECT_FALSE(config->experts.biased_weights);
}

TEST(ModelConfigTest, SwitchesOfTheTwoPointsOnWhichImplementationsDiffer) {
  json root = Valid();
  root["rms_norm_eps"] = 1e-5;
  auto config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string plain = CanonicalArchitecture(*config);
  EXPECT_EQ(config->latent.norm_eps, 1e-5);
  root["deltafill"] = {{"kv_a_layernorm_eps", 1e-6}};
  config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->latent.norm_eps, 1e-6);
  EXPECT_NE(CanonicalArchitecture(*config), plain);
  root["deltafill"] = {{"biased_expert_weights", true}};
  config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->experts.biased_weights);
  EXPECT_NE(CanonicalArchitecture(*config), plain);
}

// Every field that the arithmetic of hybrids depends on is part of the fingerprint.
TEST(ModelConfigTest, HybridFieldsShowInTheArchitecture) {
  const std::string plain = CanonicalArchitecture(*ParseModelConfig(Valid().dump()));
  const std::pair<const char*, json> changes[] = {
      {"/kv_lora_rank", 41},         {"/qk_nope_head_dim", 25},
      {"/qk_rope_head_dim", 9},      {"/v_head_dim", 21},
      {"/num_experts_per_token", 3}, {"/num_shared_experts", 2},
      {"/num_experts", 9},           {"/moe_intermediate_size", 97},
      {"/moe_renormalize", true},    {"/routed_scaling_factor", 2.0},
      {"/first_k_dense_replace", 2}, {"/moe_layer_freq", 2},
  };
  for (const auto& [pointer, value] : changes) {
    json root = Valid();
    root[json::json_pointer(pointer)] = value;
    const auto config = ParseModelConfig(root.dump());
    ASSERT_TRUE(config.ok()) << pointer << config.status();
    EXPECT_NE(CanonicalArchitecture(*config), plain) << pointer;
  }
  json root = Valid();
  root["num_attention_heads"] = 7;
  root["num_key_value_heads"] = 7;
  EXPECT_NE(CanonicalArchitecture(*ParseModelConfig(root.dump())), plain);
}

// What transformers' class writes: layer_types beside linear_attn_config, or instead of it.
TEST(ModelConfigTest, LayerTypesMayStandAlone) {
  json root = Valid();
  root["layer_types"] = {"linear_attention", "linear_attention", "linear_attention",
                         "full_attention"};
  root["mlp_layer_types"] = {"dense", "sparse", "sparse", "sparse"};
  const auto both = ParseModelConfig(root.dump());
  ASSERT_TRUE(both.ok()) << both.status();
  root.erase("linear_attn_config");
  root.erase("first_k_dense_replace");
  root.erase("mla_use_nope");
  root["linear_num_heads"] = 3;
  root["linear_head_dim"] = 64;
  root["linear_conv_kernel_dim"] = 4;
  const auto alone = ParseModelConfig(root.dump());
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(CanonicalArchitecture(*alone), CanonicalArchitecture(*both));
  root.erase("layer_types");
  EXPECT_THAT(std::string(ParseModelConfig(root.dump()).status().message()),
              HasSubstr("layer_types is missing"));
}

TEST(ModelConfigTest, LayersBeforeFirstDenseReplaceAreDenseWhateverTheExperts) {
  json root = Valid();
  root["first_k_dense_replace"] = 4;
  const auto config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  for (const LayerConfig& layer : config->layers) EXPECT_EQ(layer.mlp, MlpKind::kDense);
}

TEST(ModelConfigTest, WithoutExpertsEveryLayerIsDense) {
  json root = Valid();
  root.erase("num_experts");
  const auto config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layers[3].mlp, MlpKind::kDense);
}

TEST(ModelConfigTest, LowerBoundGate) {
  json root = Valid();
  root["linear_attn_config"]["gate_lower_bound"] = -4.5;
  auto config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->gate, KdaGate::kLowerBound);
  EXPECT_EQ(config->gate_lower_bound, -4.5);
  root["linear_attn_config"]["gate_lower_bound"] = nullptr;
  root["linear_attn_config"]["safe_gate"] = true;
  config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->gate, KdaGate::kLowerBound);
  EXPECT_EQ(config->gate_lower_bound, -5.0);
}

TEST(ModelConfigTest, EosMayBeAListOrAbsent) {
  json root = Valid();
  root["eos_token_id"] = {5, 999};
  auto config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->eos_ids, ElementsAre(5u, 999u));
  root.erase("eos_token_id");
  config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->eos_ids.empty());
}

struct BadKey {
  const char* pointer;  // JSON pointer of the key to change
  json value;           // null: the key is removed
  const char* message;  // must be in the error
};

class BadConfigTest : public testing::TestWithParam<BadKey> {};

TEST_P(BadConfigTest, ErrorNamesTheKey) {
  json root = Valid();
  const json::json_pointer pointer(GetParam().pointer);
  if (GetParam().value.is_null()) {
    root.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    root[pointer] = GetParam().value;
  }
  const auto config = ParseModelConfig(root.dump());
  ASSERT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << root;
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BadConfigTest,
    testing::Values(
        BadKey{"/model_type", nullptr, "model_type is missing"},
        BadKey{"/model_type", "llama", "model_type must be \"kimi_linear\" or \"kda\""},
        BadKey{"/model_type", 3, "model_type"}, BadKey{"/vocab_size", nullptr, "vocab_size"},
        BadKey{"/vocab_size", 0, "vocab_size must be an integer in [1, 16777216]"},
        BadKey{"/vocab_size", 16777217, "vocab_size"}, BadKey{"/vocab_size", 1e3, "vocab_size"},
        BadKey{"/vocab_size", "1000", "vocab_size"}, BadKey{"/hidden_size", -1, "hidden_size"},
        BadKey{"/hidden_size", 18446744073709551615u, "hidden_size"},
        BadKey{"/intermediate_size", true, "intermediate_size"},
        BadKey{"/num_hidden_layers", 1025, "num_hidden_layers must be an integer in [1, 1024]"},
        BadKey{"/num_hidden_layers", 3, "full_attn_layers must be a list of distinct integers"},
        BadKey{"/first_k_dense_replace", -1, "first_k_dense_replace"},
        BadKey{"/num_experts", "many", "num_experts"},
        BadKey{"/moe_layer_freq", 0, "moe_layer_freq"},
        BadKey{"/rms_norm_eps", 0, "rms_norm_eps must be a number in (0, 0.1]"},
        BadKey{"/rms_norm_eps", 0.5, "rms_norm_eps"}, BadKey{"/hidden_act", "gelu", "hidden_act"},
        BadKey{"/tie_word_embeddings", 1, "tie_word_embeddings must be true or false"},
        BadKey{"/model_max_length", -4, "model_max_length"},
        BadKey{"/quantization_config", json::object(), "quantization_config"},
        BadKey{"/eos_token_id", 1000, "eos_token_id"},
        BadKey{"/eos_token_id", {1, -1}, "eos_token_id"},
        BadKey{"/eos_token_id", std::vector<int>(65, 1), "eos_token_id"},
        BadKey{"/linear_attn_config", nullptr, "linear_attn_config must be an object"},
        BadKey{"/linear_attn_config", 4, "linear_attn_config must be an object"},
        BadKey{"/linear_attn_config/num_heads", 0, "linear_attn_config.num_heads"},
        BadKey{"/linear_attn_config/head_dim", 96, "linear_attn_config.head_dim is 96"},
        BadKey{"/linear_attn_config/short_conv_kernel_size", 3, "short_conv_kernel_size is 3"},
        BadKey{"/linear_attn_config/gate_lower_bound", -6,
               "gate_lower_bound must be a number in [-5"},
        BadKey{"/linear_attn_config/gate_lower_bound", 0, "gate_lower_bound"},
        BadKey{"/linear_attn_config/safe_gate", "yes", "safe_gate"},
        BadKey{"/linear_attn_config/use_full_rank_gate", true, "use_full_rank_gate"},
        BadKey{"/linear_attn_config/full_attn_layers", {0}, "full_attn_layers"},
        BadKey{"/linear_attn_config/full_attn_layers", {4, 4}, "full_attn_layers"},
        BadKey{"/linear_attn_config/full_attn_layers", 4, "full_attn_layers"},
        BadKey{"/linear_attn_config",
               {{"full_attn_layers", {1, 2, 3, 4}}, {"head_dim", 64}, {"num_heads", 3}},
               "linear_attn_config.full_attn_layers leave no layer to KDA"},
        BadKey{"/first_k_dense_replace", nullptr, "first_k_dense_replace is missing"},
        BadKey{"/layer_types", {"full_attention"}, "layer_types must be a list of 4 times"},
        BadKey{"/layer_types",
               {"linear_attention", "linear_attention", "full_attention", "full_attention"},
               "layer_types and linear_attn_config.full_attn_layers disagree on layer 3"},
        BadKey{"/mlp_layer_types",
               {"dense", "dense", "sparse", "sparse"},
               "mlp_layer_types and first_k_dense_replace disagree on layer 2"},
        BadKey{"/mlp_layer_types", {"dense", "sparse", "sparse", "other"}, "mlp_layer_types"},
        BadKey{"/num_attention_heads", nullptr, "num_attention_heads is missing"},
        BadKey{"/num_key_value_heads", 2,
               "num_key_value_heads is 2; it must be num_attention_heads (6)"},
        BadKey{"/kv_lora_rank", nullptr, "kv_lora_rank is missing"},
        BadKey{"/kv_lora_rank", 8193, "kv_lora_rank must be an integer in [1, 8192]"},
        BadKey{"/qk_nope_head_dim", 0, "qk_nope_head_dim"},
        BadKey{"/qk_rope_head_dim", -1, "qk_rope_head_dim must be an integer in [0, 1024]"},
        BadKey{"/v_head_dim", 1025, "v_head_dim"},
        BadKey{"/q_lora_rank", 128, "q_lora_rank is set; only null is supported"},
        BadKey{"/mla_use_nope", nullptr, "mla_use_nope is missing; only true is supported"},
        BadKey{"/mla_use_nope", false, "mla_use_nope is false; only true is supported"},
        BadKey{"/attention_bias", true, "attention_bias is true; only false is supported"},
        BadKey{"/num_experts", 1025, "num_experts must be an integer in [0, 1024]"},
        BadKey{"/num_experts_per_token", 9, "num_experts_per_token must be an integer in [1, 8]"},
        BadKey{"/num_experts_per_token", nullptr, "num_experts_per_token is missing"},
        BadKey{"/num_shared_experts", nullptr, "num_shared_experts is missing"},
        BadKey{"/moe_intermediate_size", 0, "moe_intermediate_size"},
        BadKey{"/moe_renormalize", 1, "moe_renormalize must be true or false"},
        BadKey{"/moe_router_activation_func", "softmax",
               "moe_router_activation_func must be \"sigmoid\""},
        BadKey{"/routed_scaling_factor", nullptr, "routed_scaling_factor is missing"},
        BadKey{"/routed_scaling_factor", 0, "routed_scaling_factor must be a number in (0, 1000]"},
        BadKey{"/num_expert_group", 2, "num_expert_group is 2; only 1 is supported"},
        BadKey{"/topk_group", 4, "topk_group is 4; only 1 is supported"},
        BadKey{"/use_grouped_topk", "no", "use_grouped_topk"},
        BadKey{"/deltafill", true, "deltafill must be an object"},
        BadKey{"/deltafill", {{"kv_norm_eps", 1e-6}}, "deltafill.kv_norm_eps is no switch"},
        BadKey{"/deltafill", {{"kv_a_layernorm_eps", 0}}, "deltafill.kv_a_layernorm_eps"},
        BadKey{"/deltafill", {{"biased_expert_weights", 1}}, "deltafill.biased_expert_weights"},
        BadKey{"/linear_attn_config/kda_layers", {1, 2}, "must name layer 3 exactly once"},
        BadKey{"/linear_attn_config/kda_layers", {1, 2, 3, 4}, "must name layer 4 exactly once"}));

TEST(ModelConfigTest, TextThatIsNoConfiguration) {
  for (const char* text : {"", "{", "[]", "3", "{\"a\": 1,}", "\xff\xfe", "{\"a\": 1, \"a\": 2}"}) {
    EXPECT_EQ(ParseModelConfig(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_THAT(std::string(ParseModelConfig(deep).status().message()), HasSubstr("deeper than"));
  const std::string twice = "{\"model_type\": 1, \"model_type\": 2}";
  EXPECT_THAT(std::string(ParseModelConfig(twice).status().message()),
              HasSubstr("key 'model_type' twice"));
}

}  // namespace
}  // namespace deltafill::test
