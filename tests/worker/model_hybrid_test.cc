// Hybrids' passes: cut, packed, threaded and resumed in any way, the same bytes, latents included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/testing/relative_error.h"
#include "tests/worker/model_fixture.h"

namespace deltafill::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kRowsMax = 2048;

// A prompt on its way: everything that a layer keeps of the tokens so far.
struct Prompt {
  explicit Prompt(const Model& model) : state(ZeroState(model)), latents(NewLatents(model)) {}

  PrefixState state;
  LatentCache latents;
  int64_t position = 0;
  std::vector<float> logits;  // of the last token
};

class ModelHybridTest : public LoadedModelTest {
 protected:
  ModelHybridTest() : LoadedModelTest(kRowsMax) {}

  void Run(Prompt& prompt, const std::vector<uint32_t>& tokens) {
    const RangeResult range =
        PrefillRange(*model_, *lane_, tokens, {}, &prompt.state, &prompt.latents, prompt.position);
    prompt.state = range.state;
    prompt.logits = range.logits;
    prompt.position += static_cast<int64_t>(tokens.size());
  }

  // The whole prompt in ranges of the lengths given, the last one again and again.
  Prompt RunBy(const std::vector<uint32_t>& tokens, const std::vector<size_t>& lengths) {
    Prompt prompt(*model_);
    size_t begin = 0;
    for (size_t i = 0; begin < tokens.size(); ++i) {
      const size_t length = lengths[std::min(i, lengths.size() - 1)];
      const size_t end = std::min(begin + length, tokens.size());
      Run(prompt, Slice(tokens, begin, end));
      begin = end;
    }
    return prompt;
  }

  std::string Difference(const Prompt& got, const Prompt& wanted) {
    if (got.position != wanted.position) return "positions differ";
    if (got.state != wanted.state) return "recurrent states or tails differ";
    for (uint32_t layer : model_->state_layout().latents.layers) {
      const std::string rows = ByteDifference(LatentRows(got.latents, layer, 0, got.position),
                                              LatentRows(wanted.latents, layer, 0, got.position));
      if (!rows.empty()) return absl::StrCat("latents of layer ", layer, ": ", rows);
    }
    const std::string logits = ByteDifference(got.logits, wanted.logits);
    return logits.empty() ? "" : "logits: " + logits;
  }
};

TEST_P(ModelHybridTest, RangesOfAnyLengthGiveTheSameBytes) {
  for (size_t length : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 130u, 257u, 321u}) {
    const auto tokens = RandomTokens(*model_, static_cast<int64_t>(length), length);
    const Prompt whole = RunBy(tokens, {length});
    for (const std::vector<size_t>& lengths :
         std::vector<std::vector<size_t>>{{64}, {128}, {192, 64}}) {
      EXPECT_EQ(Difference(RunBy(tokens, lengths), whole), "") << length << " by " << lengths[0];
    }
  }
}

TEST_P(ModelHybridTest, ThreadsDoNotShow) {
  const auto tokens = RandomTokens(*model_, 300, 12);
  const Prompt one = RunBy(tokens, {300});
  for (int threads : {2, 3}) {
    lane_ = NewLane(threads);
    EXPECT_EQ(Difference(RunBy(tokens, {192, 64}), one), "") << threads;
  }
}

TEST_P(ModelHybridTest, PackedRangesAreIndependent) {
  const std::vector<int64_t> before = {0, 64, 128, 0, 320};
  const std::vector<int64_t> lengths = {1, 130, 2, 64, 77};
  std::vector<std::vector<uint32_t>> tokens;
  std::vector<Prompt> alone;
  std::vector<Prompt> packed;
  std::vector<std::unique_ptr<MemoryPort>> ports;
  std::vector<RangeWork> ranges;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto prefix = RandomTokens(*model_, std::max<int64_t>(before[i], 1), 100 + i);
    tokens.push_back(RandomTokens(*model_, lengths[i], 200 + i));
    for (std::vector<Prompt>* prompts : {&alone, &packed}) {
      prompts->emplace_back(*model_);
      if (before[i] > 0) Run(prompts->back(), prefix);
    }
    Run(alone.back(), tokens.back());
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    ASSERT_TRUE(packed[i].latents.Reserve(before[i] + lengths[i]).ok());
    ports.push_back(std::make_unique<MemoryPort>(model_->state_layout(), &packed[i].state, 0));
    ports.back()->use_latents(&packed[i].latents, before[i]);
    ranges.push_back({.tokens = tokens[i], .captures = {}, .port = ports.back().get()});
  }
  ASSERT_TRUE(model_->Prefill(*lane_, ranges).ok());
  const size_t vocabulary = static_cast<size_t>(model_->config().vocab_size);
  std::vector<float> logits(lengths.size() * vocabulary);
  ASSERT_TRUE(model_->LastLogits(*lane_, logits).ok());
  for (size_t i = 0; i < lengths.size(); ++i) {
    packed[i].state = ports[i]->outgoing();
    packed[i].position += lengths[i];
    packed[i].logits = {logits.begin() + static_cast<int64_t>(i * vocabulary),
                        logits.begin() + static_cast<int64_t>((i + 1) * vocabulary)};
    EXPECT_EQ(Difference(packed[i], alone[i]), "") << i;
  }
}

TEST_P(ModelHybridTest, DecodingFollowsPrefillInAnyBatch) {
  const auto tokens = RandomTokens(*model_, 140, 13);
  const size_t vocabulary = static_cast<size_t>(model_->config().vocab_size);
  Prompt single = RunBy(Slice(tokens, 0, 121), {64});
  Prompt batched = RunBy(Slice(tokens, 0, 121), {64});
  Prompt other = RunBy(Slice(tokens, 3, 70), {64});
  std::vector<float> logits(vocabulary);
  std::vector<float> both(2 * vocabulary);
  for (size_t position = 121; position < tokens.size(); ++position) {
    for (Prompt* prompt : {&single, &batched, &other}) {
      ASSERT_TRUE(prompt->latents.Reserve(prompt->position + 1).ok());
    }
    const auto row = [&](Prompt& prompt) {
      return DecodeRow{.token = tokens[position],
                       .position = static_cast<uint64_t>(prompt.position++),
                       .state = prompt.state.data(),
                       .latents = &prompt.latents};
    };
    const DecodeRow own = row(single);
    ASSERT_TRUE(model_->DecodeStep(*lane_, {&own, 1}, logits).ok());
    const DecodeRow rows[] = {row(other), row(batched)};
    ASSERT_TRUE(model_->DecodeStep(*lane_, rows, both).ok());
    EXPECT_EQ(ByteDifference(std::span(both).subspan(vocabulary, vocabulary), logits), "");
    const Prompt prefilled = RunBy(Slice(tokens, 0, position + 1), {1024});
    const std::vector<double> wanted(prefilled.logits.begin(), prefilled.logits.end());
    EXPECT_LE(RelativeError(logits, wanted), 2e-5) << position;
  }
  EXPECT_EQ(single.state, batched.state);
  const Prompt prefilled = RunBy(tokens, {1024});
  for (uint32_t layer : model_->state_layout().latents.layers) {
    const auto got = LatentRows(single.latents, layer, 0, 140);
    EXPECT_EQ(ByteDifference(got, LatentRows(batched.latents, layer, 0, 140)), "");
    const auto rows = LatentRows(prefilled.latents, layer, 0, 140);
    EXPECT_LE(RelativeError(got, {std::vector<double>(rows.begin(), rows.end())}), 2e-5);
  }
}

TEST_P(ModelHybridTest, BadDecodeRowsNameTheField) {
  Prompt prompt(*model_);
  std::vector<float> logits(static_cast<size_t>(model_->config().vocab_size));
  DecodeRow row{.token = 0, .position = 0, .state = prompt.state.data()};
  absl::Status status = model_->DecodeStep(*lane_, {&row, 1}, logits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows: a latent cache is null"));
  row.latents = &prompt.latents;
  ASSERT_TRUE(prompt.latents.Reserve(1).ok());
  row.position = kernels::kLatentPageTokens;
  status = model_->DecodeStep(*lane_, {&row, 1}, logits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rows: position 4096 is past the latent cache's 4096 tokens"));
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelHybridTest,
                         testing::Values("hybrid_native", "hybrid_attention_first",
                                         "hybrid_switches"),
                         [](const auto& info) { return std::string(info.param); });

class ModelPagesTest : public ModelHybridTest {};

// Ranges that end at, before and behind the pages' edges.
TEST_P(ModelPagesTest, PagesDoNotShow) {
  const auto tokens = RandomTokens(*model_, 8300, 21);
  const Prompt even = RunBy(tokens, {2048});
  EXPECT_EQ(Difference(RunBy(tokens, {1344}), even), "");
  lane_ = NewLane(2);
  EXPECT_EQ(Difference(RunBy(tokens, {2048, 1984, 64, 64, 1920, 2048}), even), "");
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelPagesTest, testing::Values("hybrid_pages"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deltafill::test
