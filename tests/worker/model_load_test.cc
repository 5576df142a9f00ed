// Loading model directories: what is refused, the fingerprint, and what init writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/worker/model_fixture.h"
#include "worker/model/checkpoint.h"
#include "worker/model/fingerprint.h"
#include "worker/model/init.h"
#include "worker/model/init_config.h"
#include "worker/model/inspect.h"
#include "worker/model/model_directory.h"

namespace deltafill::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ModelLoadTest : public testing::Test {
 protected:
  ModelLoadTest() : path_(directory_.path() + "/model") { CopyFixture("softplus_d32", path_); }

  void ChangeConfig(const char* pointer, const json& value) {
    json config = json::parse(ReadFile(path_ + "/config.json"));
    config[json::json_pointer(pointer)] = value;
    WriteFile(path_ + "/config.json", config.dump());
  }
  // Renames a tensor in the file's header, same length.
  void RenameTensor(const std::string& from, const std::string& to) {
    std::string file = ReadFile(path_ + "/model.safetensors");
    const size_t place = file.find(absl::StrCat("\"", from, "\""));
    ASSERT_NE(place, std::string::npos);
    file.replace(place + 1, to.size(), to);
    WriteFile(path_ + "/model.safetensors", file);
  }
  absl::Status Load() { return LoadModel(path_, MakeCpuBackend()).status(); }
  ModelFingerprint Fingerprint() {
    const auto model = LoadOrFail(path_);
    return model != nullptr ? model->fingerprint() : ModelFingerprint{};
  }

  TemporaryDirectory directory_;
  const std::string path_;
};

TEST_F(ModelLoadTest, FaultsNameFileAndTensor) {
  RenameTensor("model.layers.1.self_attn.A_log", "model.layers.1.self_attn.B_log");
  absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path_ + ": tensor 'model.layers.1.self_attn.A_log' is missing"));
  RenameTensor("model.layers.1.self_attn.B_log", "model.layers.1.self_attn.A_log");
  ChangeConfig("/intermediate_size", 78);
  status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight' has shape "
                        "[77, 48]; config.json wants [78, 48]"));
}

class HybridLoadTest : public ModelLoadTest {
 protected:
  HybridLoadTest() {
    std::filesystem::remove_all(path_);
    CopyFixture("hybrid_attention_first", path_);
  }
};

TEST_F(HybridLoadTest, FaultsNameTheExpertsTensor) {
  RenameTensor("model.layers.1.block_sparse_moe.experts.3.w2.weight",
               "model.layers.1.block_sparse_moe.experts.9.w2.weight");
  absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor 'model.layers.1.block_sparse_moe.experts.3.w2.weight' is missing"));
  RenameTensor("model.layers.1.block_sparse_moe.experts.9.w2.weight",
               "model.layers.1.block_sparse_moe.experts.3.w2.weight");
  ChangeConfig("/num_experts", 4);
  status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'model.layers.0.block_sparse_moe.gate.weight' has shape [5, 36]; "
                        "config.json wants [4, 36]"));
}

TEST_F(HybridLoadTest, FaultsNameTheAttentionsTensor) {
  RenameTensor("model.layers.0.self_attn.kv_b_proj.weight",
               "model.layers.0.self_attn.kv_c_proj.weight");
  EXPECT_THAT(std::string(Load().message()),
              HasSubstr("tensor 'model.layers.0.self_attn.kv_b_proj.weight' is missing"));
  RenameTensor("model.layers.0.self_attn.kv_c_proj.weight",
               "model.layers.0.self_attn.kv_b_proj.weight");
  ChangeConfig("/v_head_dim", 41);
  EXPECT_THAT(std::string(Load().message()),
              HasSubstr("'model.layers.0.self_attn.kv_b_proj.weight' has shape [56, 24]; "
                        "config.json wants [57, 24]"));
}

TEST_F(HybridLoadTest, SwitchesShowInTheFingerprint) {
  const ModelFingerprint fingerprint = Fingerprint();
  ChangeConfig("/deltafill", {{"biased_expert_weights", true}});
  EXPECT_NE(Fingerprint(), fingerprint);
  ChangeConfig("/deltafill", {{"biased_expert_weights", false}});
  EXPECT_EQ(Fingerprint(), fingerprint);
  ChangeConfig("/deltafill", {{"kv_a_layernorm_eps", 1e-5}});
  EXPECT_NE(Fingerprint(), fingerprint);
}

TEST_F(ModelLoadTest, MissingFiles) {
  std::filesystem::remove(path_ + "/model.safetensors");
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(path_ + "/config.json");
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Load().message()), HasSubstr(path_ + "/config.json"));
}

TEST_F(ModelLoadTest, DirectoryThatCannotBeWritten) {
  const ModelFingerprint fingerprint = Fingerprint();
  std::filesystem::remove(path_ + "/" + kFingerprintFileName);
  // A folder in the cache's place refuses the file for every user, root included.
  std::filesystem::create_directory(path_ + "/" + kFingerprintFileName);
  std::filesystem::permissions(
      path_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(Fingerprint(), fingerprint);
  std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++files;
  EXPECT_EQ(files, 3u);  // nothing half-written stays behind
}

TEST_F(ModelLoadTest, FingerprintIsCachedUntilAFileChanges) {
  const ModelFingerprint fingerprint = Fingerprint();
  const std::string cache = path_ + "/" + kFingerprintFileName;
  ASSERT_TRUE(std::filesystem::exists(cache));
  // The cache is believed while its guard matches.
  json cached = json::parse(ReadFile(cache));
  cached["fingerprint"] = std::string(64, 'a');
  WriteFile(cache, cached.dump());
  EXPECT_EQ(Fingerprint().ToHex(), std::string(64, 'a'));
  // Rewritten weights, even with the same bytes, make it stale.
  WriteFile(path_ + "/model.safetensors", ReadFile(path_ + "/model.safetensors"));
  std::filesystem::last_write_time(
      path_ + "/model.safetensors",
      std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(Fingerprint(), fingerprint);
  WriteFile(cache, "{\"fingerprint\": 3");
  EXPECT_EQ(Fingerprint(), fingerprint);
}

TEST_F(ModelLoadTest, FingerprintSeesBytesAndArchitectureOnly) {
  const ModelFingerprint fingerprint = Fingerprint();
  ChangeConfig("/model_max_length", 77);
  ChangeConfig("/eos_token_id", json::array({5, 6}));
  EXPECT_EQ(Fingerprint(), fingerprint);
  ChangeConfig("/rms_norm_eps", 2e-5);
  EXPECT_NE(Fingerprint(), fingerprint);
  ChangeConfig("/rms_norm_eps", 1e-5);
  EXPECT_EQ(Fingerprint(), fingerprint);
  std::string file = ReadFile(path_ + "/model.safetensors");
  file.back() = static_cast<char>(file.back() ^ 1);
  WriteFile(path_ + "/model.safetensors", file);
  std::filesystem::remove(path_ + "/" + kFingerprintFileName);
  EXPECT_NE(Fingerprint(), fingerprint);
}

TEST(ModelFingerprintTest, ShardingDoesNotShow) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/model";
  CopyFixture("tied_d64_sharded", path);
  const auto sharded = LoadOrFail(path);
  std::filesystem::remove(path + "/model.safetensors.index.json");
  std::filesystem::rename(path + "/model-00001-of-00002.safetensors", path + "/z.safetensors");
  const auto listed = LoadOrFail(path);
  ASSERT_TRUE(sharded != nullptr && listed != nullptr);
  EXPECT_EQ(sharded->fingerprint(), listed->fingerprint());
}

TEST(InitModelTest, TinyIsTheSameEverywhere) {
  TemporaryDirectory directory;
  ASSERT_TRUE(InitModel("tiny", 1, directory.path() + "/a").ok());
  ASSERT_TRUE(InitModel("tiny", 1, directory.path() + "/b").ok());
  ASSERT_TRUE(InitModel("tiny", 2, directory.path() + "/c").ok());
  EXPECT_EQ(ReadFile(directory.path() + "/a/model.safetensors"),
            ReadFile(directory.path() + "/b/model.safetensors"));
  const auto first = InspectModel(directory.path() + "/a");
  const auto other = InspectModel(directory.path() + "/c");
  ASSERT_TRUE(first.ok() && other.ok()) << first.status() << other.status();
  EXPECT_EQ(first->fingerprint.ToHex(),
            "4030bbde80db80337aeaf456540a36d868fbb1f48581415fddd7211a732f84fe");
  EXPECT_NE(first->fingerprint, other->fingerprint);
  EXPECT_EQ(first->tokenizer_kind, "bytes");
  EXPECT_GE(first->config.vocab_size, 256);
  EXPECT_GE(first->config.layers.size(), 2u);
  EXPECT_GT(first->weight_bytes, 2 * first->parameters);  // fp32 vectors among bf16
  EXPECT_THAT(ReadFile(directory.path() + "/a/README.md"), HasSubstr("untrained"));
  EXPECT_NE(LoadOrFail(directory.path() + "/a"), nullptr);
}

// The public model's size, from its tensors' shapes.
TEST(InitModelTest, LargePresetHasThePublicShape) {
  const auto bytes = InitialModelBytes("kimi-linear-48b");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 98'000'000'000u);
  EXPECT_LT(*bytes, 98'500'000'000u);
  EXPECT_EQ(InitialModelBytes("huge").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(InitModelTest, TinyHybridComputesSaneValues) {
  TemporaryDirectory directory;
  ASSERT_TRUE(InitModel("kimi-linear-tiny", 1, directory.path() + "/a").ok());
  const auto model = LoadOrFail(directory.path() + "/a");
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(model->config().HasLatentAttention() && model->config().HasExperts());
  auto lane = model->NewLane(1, 512);
  ASSERT_TRUE(lane.ok()) << lane.status();
  const RangeResult result =
      PrefillRange(*model, **lane, RandomTokens(*model, 500, 1), {}, nullptr);
  double squares = 0.0;
  for (float logit : result.logits) squares += static_cast<double>(logit) * logit;
  const double rms = std::sqrt(squares / static_cast<double>(result.logits.size()));
  EXPECT_GT(rms, 0.5);
  EXPECT_LT(rms, 2.0);
}

TEST(InitModelTest, Refusals) {
  TemporaryDirectory directory;
  WriteFile(directory.path() + "/file", "x");
  EXPECT_EQ(InitModel("tiny", 1, directory.path()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(InitModel("tiny", 1, directory.path() + "/file").code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(InitModel("tiny", 1, directory.path() + "/file/x").code(),
            absl::StatusCode::kPermissionDenied);
  const absl::Status status = InitModel("huge", 1, directory.path() + "/new");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tiny, small, dense-1b, kimi-linear-tiny, kimi-linear-48b"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/new"));
}

TEST(InitModelTest, EveryPresetIsAValidConfiguration) {
  for (const std::string& name : ModelPresetNames()) {
    const auto preset = FindModelPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    EXPECT_GE(preset->config.vocab_size, 259) << name;
    const auto read = ParseModelConfig(InitialConfigText(preset->config));
    ASSERT_TRUE(read.ok()) << name << read.status();
    EXPECT_EQ(CanonicalArchitecture(*read), CanonicalArchitecture(preset->config)) << name;
    EXPECT_GT(MakeStateLayout(preset->config).bytes, 0u) << name;
  }
}

TEST(TokenizerFileTest, KindAndFaults) {
  TemporaryDirectory directory;
  auto file = ReadTokenizerFile(directory.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->kind, "");
  const std::string path = directory.path() + "/" + kTokenizerFileName;
  WriteFile(path, "{\"kind\": \"bytes\"}");
  file = ReadTokenizerFile(directory.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->kind, "bytes");
  EXPECT_EQ(file->contents, "{\"kind\": \"bytes\"}");
  for (const char* text : {"", "[]", "{}", "{\"kind\": 1}", "{\"kind\": \"\"}"}) {
    WriteFile(path, text);
    EXPECT_EQ(ReadTokenizerFile(directory.path()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(TokenizerFileTest, WhatTheDirectoryHolds) {
  TemporaryDirectory directory;
  WriteFile(directory.path() + "/tokenizer.json", "{\"model\": {}}");
  auto file = ReadTokenizerFile(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->kind, "huggingface");
  EXPECT_EQ(file->contents, "{\"model\": {}}");
  WriteFile(directory.path() + "/tiktoken.model", "IQ== 0\n");
  file = ReadTokenizerFile(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->kind, "tiktoken");
  EXPECT_EQ(file->contents, "deltafill.tiktoken.1\n0\nIQ== 0\n");
  WriteFile(directory.path() + "/tokenizer_config.json", "{\"a\": 1}");
  file = ReadTokenizerFile(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->contents, "deltafill.tiktoken.1\n8\n{\"a\": 1}IQ== 0\n");
  std::filesystem::resize_file(directory.path() + "/tiktoken.model", kTokenizerBytesMax);
  EXPECT_THAT(std::string(ReadTokenizerFile(directory.path()).status().message()),
              HasSubstr("tiktoken.model: over"));
  WriteFile(directory.path() + "/" + kTokenizerFileName, "{\"kind\": \"bytes\"}");
  file = ReadTokenizerFile(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->kind, "bytes") << "deltafill's own file comes first";
}

}  // namespace
}  // namespace deltafill::test
