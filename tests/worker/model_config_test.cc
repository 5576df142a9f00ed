// config.json: what is read, and each error by the name of its key.
#include "worker/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

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
        BadKey{"/model_type", "llama", "model_type must be \"kimi_linear\""},
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
