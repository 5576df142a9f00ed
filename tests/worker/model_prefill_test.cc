// A model's passes: cut, packed, threaded and captured in any way, the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/testing/relative_error.h"
#include "tests/worker/model_fixture.h"

namespace deltafill::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kRowsMax = 512;

class ModelPrefillTest : public LoadedModelTest {
 protected:
  ModelPrefillTest() : LoadedModelTest(kRowsMax) {}

  RangeResult Run(const std::vector<uint32_t>& tokens, const std::vector<int64_t>& captures = {},
                  const PrefixState* start = nullptr) {
    return PrefillRange(*model_, *lane_, tokens, captures, start);
  }
};

TEST_P(ModelPrefillTest, RangesOfAnyLengthGiveTheSameBytes) {
  for (size_t length : {1u, 2u, 63u, 64u, 65u, 66u, 67u, 127u, 128u, 130u, 257u}) {
    const auto tokens = RandomTokens(*model_, static_cast<int64_t>(length), length);
    const RangeResult whole = Run(tokens);
    for (size_t step : {64u, 128u}) {
      PrefixState state = ZeroState(*model_);
      RangeResult last;
      for (size_t begin = 0; begin < length; begin += step) {
        last = Run(Slice(tokens, begin, std::min(begin + step, length)), {}, &state);
        state = last.state;
      }
      EXPECT_EQ(last.state, whole.state) << length << " tokens by " << step;
      EXPECT_EQ(ByteDifference(last.logits, whole.logits), "") << length << " tokens by " << step;
    }
  }
}

TEST_P(ModelPrefillTest, CapturesAreTheStatesOfShorterRuns) {
  const auto tokens = RandomTokens(*model_, 256, 11);
  const RangeResult plain = Run(tokens);
  const RangeResult captured = Run(tokens, {64, 128, 256});
  EXPECT_EQ(captured.state, plain.state);
  EXPECT_EQ(ByteDifference(captured.logits, plain.logits), "");
  EXPECT_EQ(captured.captures[0], Run(Slice(tokens, 0, 64)).state);
  EXPECT_EQ(captured.captures[1], Run(Slice(tokens, 0, 128)).state);
  EXPECT_EQ(captured.captures[2], plain.state);
  // Of a range that starts from a state.
  const RangeResult second = Run(Slice(tokens, 64, 250), {64, 128}, &captured.captures[0]);
  EXPECT_EQ(second.captures[0], captured.captures[1]);
  EXPECT_EQ(second.captures[1], Run(Slice(tokens, 0, 192)).state);
}

TEST_P(ModelPrefillTest, PackedRangesAreIndependent) {
  const std::vector<std::vector<uint32_t>> prompts = {
      RandomTokens(*model_, 1, 1), RandomTokens(*model_, 130, 2), RandomTokens(*model_, 2, 3),
      RandomTokens(*model_, 64, 4), RandomTokens(*model_, 77, 5)};
  const PrefixState start = Run(RandomTokens(*model_, 64, 9)).state;
  std::vector<std::unique_ptr<MemoryPort>> ports;
  std::vector<RangeWork> ranges;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int64_t> captures =
        i == 1 ? std::vector<int64_t>{64, 128} : std::vector<int64_t>{};
    ports.push_back(std::make_unique<MemoryPort>(model_->state_layout(),
                                                 i % 2 == 0 ? &start : nullptr, captures.size()));
    ranges.push_back({.tokens = prompts[i], .captures = captures, .port = ports.back().get()});
  }
  ASSERT_TRUE(model_->Prefill(*lane_, ranges).ok());
  const size_t vocabulary = static_cast<size_t>(model_->config().vocab_size);
  std::vector<float> logits(prompts.size() * vocabulary);
  ASSERT_TRUE(model_->LastLogits(*lane_, logits).ok());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const RangeResult alone = Run(prompts[i], ranges[i].captures, i % 2 == 0 ? &start : nullptr);
    EXPECT_EQ(ports[i]->outgoing(), alone.state) << i;
    EXPECT_EQ(ports[i]->captures(), alone.captures) << i;
    EXPECT_EQ(ByteDifference(std::span(logits).subspan(i * vocabulary, vocabulary), alone.logits),
              "");
  }
}

TEST_P(ModelPrefillTest, ThreadsDoNotShow) {
  const auto tokens = RandomTokens(*model_, 200, 12);
  const RangeResult one = Run(tokens, {64, 192});
  for (int threads : {2, 3}) {
    lane_ = NewLane(threads);
    const RangeResult many = Run(tokens, {64, 192});
    EXPECT_EQ(many.state, one.state);
    EXPECT_EQ(many.captures, one.captures);
    EXPECT_EQ(ByteDifference(many.logits, one.logits), "");
  }
}

TEST_P(ModelPrefillTest, DecodingFollowsPrefill) {
  const auto tokens = RandomTokens(*model_, 80, 13);
  PrefixState state = Run(Slice(tokens, 0, 70)).state;
  std::vector<float> logits(static_cast<size_t>(model_->config().vocab_size));
  for (size_t position = 70; position < tokens.size(); ++position) {
    const DecodeRow row{.token = tokens[position], .position = position, .state = state.data()};
    ASSERT_TRUE(model_->DecodeStep(*lane_, {&row, 1}, logits).ok());
    const RangeResult prefilled = Run(Slice(tokens, 0, position + 1));
    const std::vector<double> expected(prefilled.logits.begin(), prefilled.logits.end());
    EXPECT_LE(RelativeError(logits, expected), 2e-5) << position;
    const auto floats = [](const PrefixState& bytes) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    const std::vector<float> wanted = floats(prefilled.state);
    EXPECT_LE(RelativeError(floats(state), {std::vector<double>(wanted.begin(), wanted.end())}),
              2e-5);
  }
}

TEST_P(ModelPrefillTest, DecodingDoesNotDependOnTheBatch) {
  constexpr size_t kBatch = 70;  // more than one panel
  const size_t vocabulary = static_cast<size_t>(model_->config().vocab_size);
  const auto tokens = RandomTokens(*model_, kBatch, 14);
  std::vector<PrefixState> starts;
  for (size_t i = 0; i < kBatch; ++i) {
    starts.push_back(Run(RandomTokens(*model_, static_cast<int64_t>(1 + i % 5), 20 + i)).state);
  }
  std::vector<PrefixState> together = starts;
  std::vector<DecodeRow> rows;
  for (size_t i = 0; i < kBatch; ++i) {
    rows.push_back({.token = tokens[i], .position = 1 + i % 5, .state = together[i].data()});
  }
  std::vector<float> logits(kBatch * vocabulary);
  ASSERT_TRUE(model_->DecodeStep(*lane_, rows, logits).ok());
  std::vector<float> alone(vocabulary);
  for (size_t i = 0; i < kBatch; ++i) {
    DecodeRow own = rows[i];
    own.state = starts[i].data();
    ASSERT_TRUE(model_->DecodeStep(*lane_, {&own, 1}, alone).ok());
    EXPECT_EQ(starts[i], together[i]) << i;
    EXPECT_EQ(ByteDifference(alone, std::span(logits).subspan(i * vocabulary, vocabulary)), "")
        << i;
  }
}

TEST_P(ModelPrefillTest, TailsAreHandedOnBeforeTheWait) {
  const auto long_range = RandomTokens(*model_, 3, 15);
  const auto short_range = RandomTokens(*model_, 2, 16);
  MemoryPort port(model_->state_layout(), nullptr, 0);
  MemoryPort short_port(model_->state_layout(), nullptr, 0);
  MemoryPort last_port(model_->state_layout(), nullptr, 0);
  last_port.want_no_outgoing();
  const auto first_calls = [&](const std::vector<uint32_t>& tokens, MemoryPort& used) {
    const RangeWork range{.tokens = tokens, .captures = {}, .port = &used};
    EXPECT_TRUE(model_->Prefill(*lane_, {&range, 1}).ok());
    std::vector<std::string> calls = used.calls();
    calls.resize(std::min<size_t>(calls.size(), 5));
    return calls;
  };
  EXPECT_THAT(
      first_calls(long_range, port),
      ElementsAre("hand on 0 tail", "await 0 tail", "await 0 state", "hand on 0 state", "done 0"));
  EXPECT_THAT(
      first_calls(short_range, short_port),
      ElementsAre("await 0 tail", "hand on 0 tail", "await 0 state", "hand on 0 state", "done 0"));
  const auto calls = first_calls(long_range, last_port);
  EXPECT_THAT(std::vector<std::string>(calls.begin(), calls.begin() + 3),
              ElementsAre("await 0 tail", "await 0 state", "done 0"));
}

TEST_P(ModelPrefillTest, CancelStopsThePass) {
  const auto tokens = RandomTokens(*model_, 65, 17);
  MemoryPort port(model_->state_layout(), nullptr, 0);
  port.cancel_at(0);
  const RangeWork range{.tokens = tokens, .captures = {}, .port = &port};
  EXPECT_EQ(model_->Prefill(*lane_, {&range, 1}).code(), absl::StatusCode::kCancelled);
  std::vector<float> logits(static_cast<size_t>(model_->config().vocab_size));
  EXPECT_EQ(model_->LastLogits(*lane_, logits).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(ModelPrefillTest, BadRangesNameTheField) {
  MemoryPort port(model_->state_layout(), nullptr, 1);
  const auto fault = [&](const std::vector<uint32_t>& tokens, std::vector<int64_t> captures,
                         BoundaryPort* used) {
    const RangeWork range{.tokens = tokens, .captures = std::move(captures), .port = used};
    const absl::Status status = model_->Prefill(*lane_, {&range, 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto tokens = RandomTokens(*model_, 100, 18);
  EXPECT_THAT(fault({}, {}, &port), HasSubstr("ranges[0].tokens"));
  EXPECT_THAT(fault({static_cast<uint32_t>(model_->config().vocab_size)}, {}, &port),
              HasSubstr("is not below the vocabulary's"));
  EXPECT_THAT(fault(tokens, {63}, &port), HasSubstr("ranges[0].captures: 63"));
  EXPECT_THAT(fault(tokens, {0}, &port), HasSubstr("ranges[0].captures: 0"));
  EXPECT_THAT(fault(tokens, {128}, &port), HasSubstr("ranges[0].captures: 128"));
  EXPECT_THAT(fault(tokens, {64, 64}, &port), HasSubstr("ranges[0].captures: 64"));
  EXPECT_THAT(fault(tokens, {}, nullptr), HasSubstr("ranges[0].port"));
  EXPECT_THAT(fault(RandomTokens(*model_, kRowsMax + 1, 1), {}, &port),
              HasSubstr("the lane's 512"));
  EXPECT_EQ(model_->Prefill(*lane_, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model_->NewLane(1, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model_->NewLane(0, 64).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelPrefillTest,
                         testing::Values("softplus_d32", "tied_d64_sharded", "lower_bound_d32"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deltafill::test
