// A whole model against an implementation that is not ours: transformers' kimi_linear on the CPU
// (make_fixtures.py, make_hybrid_fixtures.py), and fla's naive functions (make_fla_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/testing/relative_error.h"
#include "tests/worker/expected_tensors.h"
#include "tests/worker/model_fixture.h"

namespace deltafill::test {
namespace {

std::vector<float> EntryOf(const Model& model, const PrefixState& state, uint32_t layer,
                           PartKind kind) {
  const StateEntry& entry = *model.state_layout().Find(layer, kind);
  std::vector<float> values(entry.bytes / sizeof(float));
  std::memcpy(values.data(), state.data() + entry.offset, entry.bytes);
  return values;
}

struct StateErrors {
  double recurrent = 0.0;
  double tail = 0.0;
  double latent = 0.0;
};

// After all of a case's tokens; the largest error of any layer, and of latents of any row.
StateErrors CompareStates(const Model& model, const PrefixState& state, const LatentCache& latents,
                          const ExpectedTensors& expected) {
  StateErrors errors;
  const ModelConfig& config = model.config();
  const std::vector<int32_t> positions = expected.Values<int32_t>("positions");
  const size_t width = model.state_layout().latents.width;
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    if (config.layers[layer].mixer == MixerKind::kKda) {
      errors.recurrent =
          std::max(errors.recurrent,
                   MaxHeadRelativeError(EntryOf(model, state, layer, PartKind::kRecurrent),
                                        expected.Doubles(absl::StrCat("recurrent.", layer)), 1,
                                        config.kda_value_heads,
                                        config.kda_value_head_dim * config.kda_head_dim));
      errors.tail =
          std::max(errors.tail, RelativeError(EntryOf(model, state, layer, PartKind::kConvTail),
                                              expected.Doubles(absl::StrCat("tail.", layer))));
      continue;
    }
    const std::vector<double> rows = expected.Doubles(absl::StrCat("latent.", layer));
    for (size_t i = 0; i < positions.size(); ++i) {
      errors.latent =
          std::max(errors.latent, RelativeError(LatentRows(latents, layer, positions[i], 1),
                                                std::span(rows).subspan(i * width, width)));
    }
  }
  return errors;
}

class ModelReferenceTest : public testing::TestWithParam<const char*> {};

// fp32 on both sides; the reference accumulates decays in fp32, which costs it a few 1e-6.
constexpr double kLogitsErrorMax = 2e-5;
constexpr double kStateErrorMax = 2e-5;

TEST_P(ModelReferenceTest, LogitsAndStatesMatch) {
  TemporaryDirectory directory;
  CopyFixture(GetParam(), directory.path() + "/model");
  const auto model = LoadOrFail(directory.path() + "/model");
  ASSERT_NE(model, nullptr);
  const ExpectedTensors expected(GetParam());
  const std::vector<int32_t> ids = expected.Values<int32_t>("tokens");
  const std::vector<uint32_t> tokens(ids.begin(), ids.end());
  const std::vector<int32_t> positions = expected.Values<int32_t>("positions");
  const std::vector<double> logits = expected.Doubles("logits");
  const size_t vocabulary = static_cast<size_t>(model->config().vocab_size);
  auto lane = model->NewLane(1, static_cast<int64_t>(tokens.size()));
  ASSERT_TRUE(lane.ok()) << lane.status();

  double logits_error = 0.0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const std::vector<uint32_t> prefix(tokens.begin(), tokens.begin() + positions[i] + 1);
    const RangeResult result = PrefillRange(*model, **lane, prefix, {}, nullptr);
    logits_error = std::max(
        logits_error,
        RelativeError(result.logits, std::span(logits).subspan(i * vocabulary, vocabulary)));
  }
  EXPECT_LE(logits_error, kLogitsErrorMax);

  LatentCache latents = NewLatents(*model);
  const RangeResult whole = PrefillRange(*model, **lane, tokens, {}, nullptr, &latents);
  const StateErrors errors = CompareStates(*model, whole.state, latents, expected);
  EXPECT_LE(errors.recurrent, kStateErrorMax);
  EXPECT_LE(errors.tail, kStateErrorMax);
  EXPECT_LE(errors.latent, kStateErrorMax);
  std::printf(
      "%s: relative error of logits %.2e, recurrent states %.2e, tails %.2e, latents %.2e\n",
      GetParam(), logits_error, errors.recurrent, errors.tail, errors.latent);
}

// Prompts that end inside, at and after pages of the latent cache, blocks and ranges: each is a
// tail after a captured boundary, as a resumed prompt is.
TEST(ModelPagesTest, PromptsThatEndAnywhereMatch) {
  TemporaryDirectory directory;
  CopyFixture("hybrid_pages", directory.path() + "/model");
  const auto model = LoadOrFail(directory.path() + "/model");
  ASSERT_NE(model, nullptr);
  const ExpectedTensors expected("hybrid_pages");
  const std::vector<int32_t> ids = expected.Values<int32_t>("tokens");
  const std::vector<uint32_t> tokens(ids.begin(), ids.end());
  ASSERT_GT(static_cast<int64_t>(tokens.size()), 2 * kernels::kLatentPageTokens);
  const std::vector<int32_t> positions = expected.Values<int32_t>("positions");
  const std::vector<double> logits = expected.Doubles("logits");
  const size_t vocabulary = static_cast<size_t>(model->config().vocab_size);
  constexpr int64_t kRange = 1344;  // 21 blocks: its edges meet no page's
  auto lane = model->NewLane(2, kRange);
  ASSERT_TRUE(lane.ok()) << lane.status();
  LatentCache latents = NewLatents(*model);
  PrefixState state = ZeroState(*model);
  double logits_error = 0.0;
  size_t next = 0;
  for (int64_t first = 0; first < static_cast<int64_t>(tokens.size()); first += kRange) {
    const int64_t end = std::min(first + kRange, static_cast<int64_t>(tokens.size()));
    std::vector<int64_t> captures;
    for (int64_t block = 64; block <= end - first; block += 64) captures.push_back(block);
    const RangeResult range =
        PrefillRange(*model, **lane, {tokens.begin() + first, tokens.begin() + end}, captures,
                     &state, &latents, first);
    for (; next < positions.size() && positions[next] < end; ++next) {
      const int64_t block = positions[next] / 64 * 64;
      const PrefixState& start =
          block == first ? state : range.captures[static_cast<size_t>((block - first) / 64 - 1)];
      const RangeResult tail = PrefillRange(
          *model, **lane, {tokens.begin() + block, tokens.begin() + positions[next] + 1}, {},
          &start, &latents, block);
      const double error =
          RelativeError(tail.logits, std::span(logits).subspan(next * vocabulary, vocabulary));
      EXPECT_LE(error, kLogitsErrorMax) << positions[next];
      logits_error = std::max(logits_error, error);
    }
    state = range.state;
  }
  EXPECT_EQ(next, positions.size());
  const StateErrors errors = CompareStates(*model, state, latents, expected);
  EXPECT_LE(errors.recurrent, kStateErrorMax);
  EXPECT_LE(errors.tail, kStateErrorMax);
  EXPECT_LE(errors.latent, kStateErrorMax);
  std::printf(
      "hybrid_pages: relative error of logits %.2e, recurrent states %.2e, tails %.2e, latents "
      "%.2e\n",
      logits_error, errors.recurrent, errors.tail, errors.latent);
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelReferenceTest,
                         testing::Values("softplus_d32", "tied_d64_sharded", "lower_bound_d32",
                                         "fast_decay_d32_f32", "hybrid_native",
                                         "hybrid_attention_first", "hybrid_switches", "fla_plain",
                                         "fla_grouped_values"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deltafill::test
