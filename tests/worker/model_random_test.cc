// Random weights, made without a checkpoint, and sizes known without weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "tests/worker/model_fixture.h"
#include "tests/worker/watched_backend.h"
#include "worker/model/hybrid_model.h"
#include "worker/model/init.h"
#include "worker/model/inspect.h"
#include "worker/model/model_directory.h"
#include "worker/model/model_sizes.h"

namespace deltafill::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kTokens = 200;

std::unique_ptr<Model> LoadRandom(const std::string& directory, uint64_t seed,
                                  std::shared_ptr<kernels::Backend> backend = MakeCpuBackend()) {
  auto model = LoadModel(directory, std::move(backend), {.random_seed = seed});
  if (!model.ok()) {
    ADD_FAILURE() << model.status();
    return nullptr;
  }
  return *std::move(model);
}

RangeResult Prefill(Model& model) {
  auto lane = model.NewLane(1, kTokens);
  EXPECT_TRUE(lane.ok()) << lane.status();
  return PrefillRange(model, **lane, RandomTokens(model, kTokens, 1), {}, nullptr);
}

class RandomWeightsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_TRUE(InitModelConfig(GetParam(), path_).ok()); }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/bare";
};

TEST_P(RandomWeightsTest, AreThoseOfInitAndNeverAnsweredAsACheckpoints) {
  const auto model = LoadRandom(path_, 7);
  const auto again = LoadRandom(path_, 7);
  const auto other = LoadRandom(path_, 8);
  ASSERT_TRUE(InitModel(GetParam(), 7, directory_.path() + "/written").ok());
  const auto written = LoadOrFail(directory_.path() + "/written");
  ASSERT_TRUE(model && again && other && written);
  const RangeResult result = Prefill(*model);
  EXPECT_EQ(Prefill(*again).state, result.state);
  EXPECT_EQ(Prefill(*written).state, result.state);
  EXPECT_EQ(Prefill(*written).logits, result.logits);
  EXPECT_NE(Prefill(*other).logits, result.logits);
  EXPECT_EQ(again->fingerprint(), model->fingerprint());
  EXPECT_NE(other->fingerprint(), model->fingerprint());
  EXPECT_NE(written->fingerprint(), model->fingerprint());
}

TEST_P(RandomWeightsTest, ADirectorysOwnWeightsAreNotRead) {
  WriteFile(path_ + "/model.safetensors", "not a checkpoint");
  EXPECT_NE(LoadRandom(path_, 1), nullptr);
  EXPECT_FALSE(LoadModel(path_, MakeCpuBackend()).ok());
}

TEST_P(RandomWeightsTest, MatricesAreMadeWhereTheBackendMakesThem) {
  const auto backend = std::make_shared<WatchedBackend>();
  backend->makes_random_weights = true;
  const auto model = LoadRandom(path_, 3, backend);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(backend->host_weights, 0);
  const auto sizes = MeasureModel(model->config());
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  const size_t projections = model->state_layout().latents.layers.size();  // from the host
  EXPECT_EQ(static_cast<size_t>(backend->random_weights), sizes->matrices.size() - projections);
  EXPECT_EQ(backend->random_seeds.size(), static_cast<size_t>(backend->random_weights));
  // Deviations are init's, so values neither vanish nor grow through the layers.
  double squares = 0.0;
  const std::vector<float> logits = Prefill(*model).logits;
  for (float logit : logits) squares += static_cast<double>(logit) * logit;
  const double rms = std::sqrt(squares / static_cast<double>(logits.size()));
  EXPECT_GT(rms, 0.5);
  EXPECT_LT(rms, 2.0);
}

INSTANTIATE_TEST_SUITE_P(Presets, RandomWeightsTest, testing::Values("tiny", "kimi-linear-tiny"),
                         [](const auto& info) { return info.index == 0 ? "dense" : "hybrid"; });

// Layers and experts are read by several threads, yet a backend that settles something with the
// first weight of a shape always meets the same one.
TEST(LoadOrderTest, TheFirstWeightOfAShapeDoesNotDependOnThreads) {
  for (const char* preset : {"small", "kimi-linear-tiny"}) {
    TemporaryDirectory directory;
    const std::string path = directory.path() + "/bare";
    ASSERT_TRUE(InitModelConfig(preset, path).ok());
    std::map<std::pair<int64_t, int64_t>, uint64_t> expected;
    for (int i = 0; i < 3; ++i) {
      const auto backend = std::make_shared<WatchedBackend>();
      backend->makes_random_weights = true;
      ASSERT_NE(LoadRandom(path, 3, backend), nullptr);
      if (i == 0) expected = backend->first_seeds;
      EXPECT_EQ(backend->first_seeds, expected) << preset;
    }
  }
}

// Any config.json will do, not only those of presets.
class RandomFixtureTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { CopyFixture(GetParam(), path_); }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/model";
};

TEST_P(RandomFixtureTest, EveryTensorIsPlanned) {
  const auto model = LoadRandom(path_, 1);
  ASSERT_NE(model, nullptr);
  for (float logit : Prefill(*model).logits) ASSERT_TRUE(std::isfinite(logit));
}

// Sizes are asked of the loader itself: they are those of the checkpoint's tensors and of lanes.
TEST_P(RandomFixtureTest, SizesAreTheCheckpoints) {
  const auto description = InspectModel(path_);
  ASSERT_TRUE(description.ok()) << description.status();
  const auto sizes = MeasureModel(description->config);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  int64_t elements = std::accumulate(sizes->matrices.begin(), sizes->matrices.end(), int64_t{0});
  elements = std::accumulate(sizes->vectors.begin(), sizes->vectors.end(), elements);
  EXPECT_EQ(static_cast<uint64_t>(elements), description->parameters);
  const auto model = LoadOrFail(path_);
  ASSERT_NE(model, nullptr);
  const auto lane = model->NewLane(1, 77);
  ASSERT_TRUE(lane.ok()) << lane.status();
  EXPECT_EQ((*lane)->sizes().rows_max, 77);
  EXPECT_EQ((*lane)->sizes().hidden, sizes->lane.hidden);
  EXPECT_EQ((*lane)->sizes().scratch_width, sizes->lane.scratch_width);
  EXPECT_EQ((*lane)->sizes().vocabulary, sizes->lane.vocabulary);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, RandomFixtureTest,
                         testing::Values("softplus_d32", "tied_d64_sharded", "fla_plain",
                                         "fla_grouped_values", "hybrid_attention_first",
                                         "hybrid_native"));

TEST(InitConfigTest, HasEverythingButWeights) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/m";
  ASSERT_TRUE(InitModelConfig("dense-1b", path).ok());
  EXPECT_FALSE(std::filesystem::exists(path + "/model.safetensors"));
  EXPECT_THAT(ReadFile(path + "/README.md"), HasSubstr("--random-weights"));
  const auto config = ReadModelConfig(path);
  ASSERT_TRUE(config.ok()) << config.status();
  // The shape that benchmarks name: 1.39 B parameters.
  EXPECT_EQ(config->layers.size(), 24u);
  EXPECT_EQ(config->hidden_size, 2048);
  EXPECT_EQ(config->kda_heads, 16);
  EXPECT_EQ(config->intermediate_size, 5632);
  EXPECT_EQ(config->vocab_size, 32000);
  const auto tokenizer = ReadTokenizerFile(path);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->kind, "bytes");
  EXPECT_EQ(InitModelConfig("dense-1b", path).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(InitModelConfig("huge", directory.path() + "/n").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LoadProgressTest, SaysAtTheEndWhatWasRead) {
  TemporaryDirectory directory;
  CopyFixture("softplus_d32", directory.path() + "/model");
  for (const size_t expected : {2, 1}) {  // the fingerprint is kept beside the model
    std::vector<std::string> lines;
    const auto model = LoadModel(directory.path() + "/model", MakeCpuBackend(),
                                 {.log = [&](const std::string& line) { lines.push_back(line); }});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(lines.size(), expected);
    EXPECT_THAT(lines.front(), testing::MatchesRegex("(fingerprint|weights): .* GB in .* s, .*"));
    EXPECT_THAT(lines.back(), testing::MatchesRegex("weights: .* GB in .* s, .* GB/s"));
  }
}

}  // namespace
}  // namespace deltafill::test
