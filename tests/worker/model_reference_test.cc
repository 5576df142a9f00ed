// A whole model against an implementation that is not ours: transformers' kimi_linear on the CPU
// (make_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/testing/relative_error.h"
#include "tests/worker/model_fixture.h"
#include "worker/model/safetensors.h"

namespace deltafill::test {
namespace {

// The expected tensors of a case, read with our own reader.
class Expected {
 public:
  explicit Expected(const std::string& name)
      : file_(ReadFile(FixturePath(name + ".expected.safetensors"))) {
    auto header = ParseSafetensors(file_, name);
    EXPECT_TRUE(header.ok()) << header.status();
    if (header.ok()) header_ = *header;
  }

  template <typename Value>
  std::vector<Value> Values(const std::string& name) const {
    for (const TensorEntry& entry : header_.tensors) {
      if (entry.name != name) continue;
      std::vector<Value> values((entry.end - entry.begin) / sizeof(Value));
      std::memcpy(values.data(), file_.data() + entry.begin, entry.end - entry.begin);
      return values;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<double> Doubles(const std::string& name) const {
    const std::vector<float> values = Values<float>(name);
    return {values.begin(), values.end()};
  }

 private:
  std::string file_;
  SafetensorsHeader header_;
};

std::vector<float> EntryOf(const Model& model, const PrefixState& state, uint32_t layer,
                           PartKind kind) {
  const StateEntry& entry = *model.state_layout().Find(layer, kind);
  std::vector<float> values(entry.bytes / sizeof(float));
  std::memcpy(values.data(), state.data() + entry.offset, entry.bytes);
  return values;
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
  const Expected expected(GetParam());
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

  const RangeResult whole = PrefillRange(*model, **lane, tokens, {}, nullptr);
  const int64_t heads = model->config().kda_heads;
  const int64_t dim = model->config().kda_head_dim;
  double state_error = 0.0;
  double tail_error = 0.0;
  for (uint32_t layer = 0; layer < model->config().layers.size(); ++layer) {
    state_error = std::max(
        state_error, MaxHeadRelativeError(EntryOf(*model, whole.state, layer, PartKind::kRecurrent),
                                          expected.Doubles(absl::StrCat("recurrent.", layer)), 1,
                                          heads, dim * dim));
    tail_error =
        std::max(tail_error, RelativeError(EntryOf(*model, whole.state, layer, PartKind::kConvTail),
                                           expected.Doubles(absl::StrCat("tail.", layer))));
  }
  EXPECT_LE(state_error, kStateErrorMax);
  EXPECT_LE(tail_error, kStateErrorMax);
  std::printf("%s: relative error of logits %.2e, recurrent states %.2e, tails %.2e\n", GetParam(),
              logits_error, state_error, tail_error);
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelReferenceTest,
                         testing::Values("softplus_d32", "tied_d64_sharded", "lower_bound_d32",
                                         "fast_decay_d32_f32"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deltafill::test
