// config.json of flash-linear-attention's `kda` models: what is read, and each error by its key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "worker/model/config.h"
#include "worker/model/fingerprint.h"

namespace deltafill::test {
using namespace worker;  // what is tested
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Valid() {
  return {{"model_type", "kda"},
          {"vocab_size", 1000},
          {"hidden_size", 200},
          {"num_hidden_layers", 3},
          {"num_heads", 3},
          {"head_dim", 64},
          {"num_v_heads", nullptr},
          {"expand_v", 1.0},
          {"conv_size", 4},
          {"use_short_conv", true},
          {"allow_neg_eigval", false},
          {"safe_gate", false},
          {"lower_bound", nullptr},
          {"hidden_ratio", 4},
          {"intermediate_size", nullptr},
          {"hidden_act", "swish"},
          {"norm_eps", 1e-6},
          {"attn", nullptr},
          {"max_position_embeddings", 2048},
          {"tie_word_embeddings", false},
          {"eos_token_id", 2}};
}

TEST(FlaKdaConfigTest, ReadsThePublicForm) {
  const auto config = ParseModelConfig(Valid().dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, ModelFamily::kFlaKda);
  EXPECT_EQ(config->model_type, "kda");
  EXPECT_EQ(config->kda_heads, 3);
  EXPECT_EQ(config->kda_value_heads, 3);
  EXPECT_EQ(config->kda_value_head_dim, 64);
  EXPECT_EQ(config->intermediate_size, 768);  // 533 rounded up to a multiple of 256
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->gate, KdaGate::kSoftplus);
  EXPECT_EQ(config->position_max, 0);
  EXPECT_EQ(config->layers.size(), 3u);
  EXPECT_FALSE(config->HasLatentAttention() || config->HasExperts());
}

TEST(FlaKdaConfigTest, GroupedValuesShowInTheArchitecture) {
  json root = Valid();
  const std::string plain = CanonicalArchitecture(*ParseModelConfig(root.dump()));
  root["num_v_heads"] = 6;
  root["expand_v"] = 0.5;
  root["lower_bound"] = -4.0;
  const auto config = ParseModelConfig(root.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kda_value_heads, 6);
  EXPECT_EQ(config->kda_value_head_dim, 32);
  EXPECT_EQ(config->gate, KdaGate::kLowerBound);
  EXPECT_EQ(config->gate_lower_bound, -4.0);
  EXPECT_NE(CanonicalArchitecture(*config), plain);
}

TEST(FlaKdaConfigTest, ErrorsNameTheKey) {
  const struct {
    const char* key;
    json value;
    const char* message;
  } faults[] = {
      {"num_heads", nullptr, "num_heads is missing"},
      {"head_dim", 96, "head_dim is 96"},
      {"num_v_heads", 4, "num_v_heads is 4; it must be a multiple of num_heads (3)"},
      {"expand_v", 1.25, "expand_v times head_dim is 80; it must be 32, 64 or 128"},
      {"expand_v", "two", "expand_v must be a number"},
      {"conv_size", 3, "conv_size is 3"},
      {"use_short_conv", false, "use_short_conv is false; only true is supported"},
      {"allow_neg_eigval", true, "allow_neg_eigval is true; only false is supported"},
      {"safe_gate", true, "lower_bound is missing, and safe_gate is true"},
      {"lower_bound", -6, "lower_bound must be a number in [-5, 0)"},
      {"hidden_ratio", 9, "hidden_ratio must be an integer in [1, 8]"},
      {"intermediate_size", 0, "intermediate_size"},
      {"hidden_act", "powlu", "hidden_act must be \"swish\""},
      {"norm_eps", 0, "norm_eps must be a number in (0, 0.1]"},
      {"attn", {{"layers", {1}}}, "attn is set; only null is supported"},
      {"attnres_block_size", 4, "attnres_block_size is set"},
      {"deltafill", json::object(), "deltafill is set"},
  };
  for (const auto& fault : faults) {
    json root = Valid();
    root[fault.key] = fault.value;
    const auto config = ParseModelConfig(root.dump());
    ASSERT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << fault.key;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(fault.message));
  }
}

}  // namespace
}  // namespace deltafill::test
