// Decode: from a prompt, from a state and more tokens; long prompts; saved states; stops.
#include <gtest/gtest.h>

#include <atomic>

#include "coordinator/front/handle.h"
#include "coordinator/front/limits.h"
#include "tests/coordinator/front_fixture.h"
#include "tests/statestore/store_fixture.h"
#include "tests/testing/eventually.h"

namespace deltafill::coordinator {
namespace {

class FrontDecodeTest : public FrontTest {
 protected:
  static v1::DecodeRequest DecodeOf(const std::vector<uint32_t>& tokens, uint32_t max_tokens) {
    v1::DecodeRequest request;
    request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
    request.set_max_tokens(max_tokens);
    return request;
  }
  static v1::DecodeRequest DecodeFrom(const std::string& state, uint32_t max_tokens) {
    v1::DecodeRequest request;
    request.set_state(state);
    request.set_max_tokens(max_tokens);
    return request;
  }
  static std::vector<uint32_t> Expected(const std::vector<uint32_t>& tokens, size_t count) {
    uint64_t state = HashTokens(0, tokens);
    std::vector<uint32_t> ids;
    while (ids.size() < count) {
      ids.push_back(NextToken(state));
      state = HashTokens(state, std::span(&ids.back(), 1));
    }
    return ids;
  }
  static std::vector<uint32_t> Joined(std::vector<uint32_t> a, const std::vector<uint32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

TEST_F(FrontDecodeTest, FromAPromptCachedOrNot) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const DecodeResult cold = Decode(DecodeOf(tokens, 20));
  ASSERT_TRUE(cold.status.ok()) << cold.status.error_message();
  EXPECT_EQ(cold.ids, Expected(tokens, 20));
  EXPECT_EQ(cold.text, std::string(cold.ids.begin(), cold.ids.end()));
  EXPECT_EQ(cold.started.prompt_tokens(), 200u);
  EXPECT_EQ(cold.started.cached_tokens(), 0u);
  EXPECT_EQ(cold.started.miss_reason(), "no state of this prefix is stored");
  EXPECT_EQ(cold.done.finish_reason(), "length");
  EXPECT_EQ(cold.done.usage().generated_tokens(), 20u);
  EXPECT_EQ(cold.done.state(), "");
  ASSERT_TRUE(Prefill(PrefillOf(tokens)).status.ok());
  const DecodeResult warm = Decode(DecodeOf(tokens, 20));
  EXPECT_EQ(warm.ids, cold.ids);
  EXPECT_EQ(warm.started.cached_tokens(), 192u);
  EXPECT_EQ(warm.started.miss_reason(), "");
  EXPECT_EQ(engine_->decodes().back().tokens.size(), 8u);
}

TEST_F(FrontDecodeTest, FromEveryKindOfHandle) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const PrefillResult prefill = Prefill(PrefillOf(tokens, {64, 150}));
  const std::vector<uint32_t> more = Tokens(70, 5);

  EXPECT_EQ(Decode(DecodeFrom(prefill.done.state(), 10)).ids, Expected(tokens, 10));
  v1::DecodeRequest request = DecodeFrom(prefill.done.state(), 10);
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(more.begin(), more.end());
  const DecodeResult extended = Decode(request);
  EXPECT_EQ(extended.ids, Expected(Joined(tokens, more), 10));
  EXPECT_EQ(extended.started.prompt_tokens(), 270u);
  EXPECT_EQ(extended.started.cached_tokens(), 192u);

  // A checkpoint's handle with a tail of 22, and one without.
  EXPECT_EQ(Decode(DecodeFrom(prefill.checkpoints.at(1).state(), 10)).ids,
            Expected(Tokens(150), 10));
  request = DecodeFrom(prefill.checkpoints.at(0).state(), 10);
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(more.begin(), more.end());
  EXPECT_EQ(Decode(request).ids, Expected(Joined(Tokens(64), more), 10));

  // The zero state's.
  const PrefillResult tiny = Prefill(PrefillOf(Tokens(5)));
  EXPECT_EQ(Decode(DecodeFrom(tiny.done.state(), 10)).ids, Expected(Tokens(5), 10));
  // A state's name is a handle without tail.
  v1::StateDescription description;
  ASSERT_TRUE(Get(prefill.checkpoints.at(0).state(), "default", false, &description).ok());
  request.set_state(description.state_id());
  EXPECT_EQ(Decode(request).ids, Expected(Joined(Tokens(64), more), 10));
}

TEST_F(FrontDecodeTest, NothingToDecodeFrom) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(200), {64}));
  const DecodeResult result = Decode(DecodeFrom(prefill.checkpoints.at(0).state(), 10));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(result.status.error_message().find("state: has no tail"), 0u);
  EXPECT_EQ(Decode(DecodeOf({}, 10)).status.error_message().find("prompt"), 0u);
  EXPECT_EQ(Decode(DecodeOf({1}, 0)).status.error_message().find("max_tokens"), 0u);
  EXPECT_EQ(Decode(DecodeFrom("df1.AAAA", 1)).status.error_message().find("state: not a"), 0u);
  v1::DecodeRequest other = DecodeFrom(prefill.done.state(), 1);
  engine_->SetModels({FakeModel(), FakeModel("other", 2)});
  other.set_model("other");
  EXPECT_EQ(Decode(other).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  ServedModel limited = FakeModel();
  limited.position_max = 205;
  engine_->SetModels({limited});
  EXPECT_TRUE(Decode(DecodeFrom(prefill.done.state(), 5)).status.ok());
  EXPECT_EQ(Decode(DecodeFrom(prefill.done.state(), 6)).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(FrontDecodeTest, SavedStatesGoOn) {
  const std::vector<uint32_t> tokens = Tokens(100);
  for (uint32_t count : {5u, 28u, 29u, 100u, 200u}) {
    v1::DecodeRequest request = DecodeOf(tokens, count);
    request.set_save_state(true);
    const DecodeResult first = Decode(request);
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    const std::vector<uint32_t> all = Joined(tokens, first.ids);
    const auto ref = DecodePrefixRef(first.done.state(), "state");
    ASSERT_TRUE(ref.ok()) << ref.status();
    const uint64_t boundary = (all.size() - 1) / 64 * 64;
    EXPECT_EQ(ref->tail, std::vector<uint32_t>(all.begin() + boundary, all.end()));
    EXPECT_EQ(Lookup(all).boundary(), boundary) << "the keys are those of the tokens";
    const DecodeResult second = Decode(DecodeFrom(first.done.state(), 10));
    EXPECT_EQ(second.ids, Expected(all, 10));
  }
}

TEST_F(FrontDecodeTest, SavedFromAHandleHasTheWholePromptsKey) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const PrefillResult prefill = Prefill(PrefillOf(tokens));
  v1::DecodeRequest request = DecodeFrom(prefill.done.state(), 100);
  request.set_save_state(true);
  const DecodeResult result = Decode(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(Lookup(Joined(tokens, result.ids)).boundary(), 256u);
  EXPECT_GT(result.done.usage().state_bytes(), 0u);
}

TEST_F(FrontDecodeTest, SavingAShortAnswerNeedsNothingNew) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(130)));
  v1::DecodeRequest request = DecodeFrom(prefill.done.state(), 3);
  request.set_save_state(true);
  const DecodeResult result = Decode(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(DecodePrefixRef(result.done.state(), "state")->tail.size(), 5u);
  EXPECT_EQ(store_->GetStats()->states, 1u);
  // From the zero state as well.
  request = DecodeOf(Tokens(10, 9), 3);
  request.set_save_state(true);
  const DecodeResult tiny = Decode(request);
  ASSERT_TRUE(tiny.status.ok());
  EXPECT_TRUE(DecodePrefixRef(tiny.done.state(), "state")->zero);
}

TEST_F(FrontDecodeTest, AStateThatWasNotSavedIsAnError) {
  engine_->omit_saved = true;
  v1::DecodeRequest request = DecodeOf(Tokens(100), 100);
  request.set_save_state(true);
  EXPECT_EQ(Decode(request).status.error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(FrontDecodeTest, LongPromptsAreSpreadFirst) {
  const std::vector<uint32_t> tokens = Tokens(kDecodeDirectTokensMax + 1000);
  const DecodeResult result = Decode(DecodeOf(tokens, 5));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.ids, Expected(tokens, 5));
  ASSERT_EQ(engine_->prefills().size(), 1u);
  EXPECT_EQ(engine_->decodes().back().start.boundary, (tokens.size() - 1) / 64 * 64);
  EXPECT_EQ(result.started.cached_tokens(), 0u);
  EXPECT_EQ(Lookup(tokens).boundary(), (tokens.size() - 1) / 64 * 64) << "and its state is kept";
  // After a handle: the tokens before it are not known, and not needed.
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(200, 3)));
  v1::DecodeRequest request = DecodeFrom(prefill.done.state(), 5);
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
  const DecodeResult after = Decode(request);
  ASSERT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.ids, Expected(Joined(Tokens(200, 3), tokens), 5));
  EXPECT_EQ(engine_->prefills().back().start.boundary, 192u);
  EXPECT_EQ(after.started.cached_tokens(), 192u);
}

TEST_F(FrontDecodeTest, StopsAndSampling) {
  const std::vector<uint32_t> tokens = Tokens(50);
  v1::DecodeRequest request = DecodeOf(tokens, 30);
  request.add_stop_ids(Expected(tokens, 30)[7]);
  request.mutable_sampling()->set_temperature(0.5);
  request.mutable_sampling()->set_seed(42);
  const DecodeResult result = Decode(request);
  EXPECT_LE(result.ids.size(), 8u);
  const DecodeWork work = engine_->decodes().back();
  EXPECT_EQ(work.stop_ids, (std::vector<uint32_t>{request.stop_ids(0), 257}));
  EXPECT_EQ(work.temperature, 0.5);
  EXPECT_EQ(work.top_p, 1.0);
  EXPECT_EQ(work.seed, 42u);
  request.set_ignore_eos(true);
  Decode(request);
  EXPECT_EQ(engine_->decodes().back().stop_ids.size(), 1u);
}

TEST_F(FrontDecodeTest, ADamagedStartIsLookedUpAgain) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const PrefillResult prefill = Prefill(PrefillOf(tokens, {64}));
  std::atomic<bool> damaged = false;
  engine_->OnSubmit([&] {
    if (!damaged.exchange(true)) Damage(prefill.done.state());
    return absl::OkStatus();
  });
  const DecodeResult result = Decode(DecodeOf(tokens, 10));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.ids, Expected(tokens, 10));
  EXPECT_EQ(result.started.cached_tokens(), 64u);
}

// What is wrong with the start shows when the engine reads it.
TEST_F(FrontDecodeTest, OnlyTheEngineReadsTheStart) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const PrefillResult prefill = Prefill(PrefillOf(tokens, {64}));
  const size_t before = deltafill::testing::FaultyEngine::layer_reads;
  std::atomic<size_t> at_submission = 0;
  engine_->OnSubmit([&] {
    at_submission = deltafill::testing::FaultyEngine::layer_reads.load();
    return absl::OkStatus();
  });
  EXPECT_EQ(Decode(DecodeOf(tokens, 10)).started.cached_tokens(), 192u);
  EXPECT_EQ(at_submission, before);
  EXPECT_GT(deltafill::testing::FaultyEngine::layer_reads, before);
  Damage(prefill.done.state());
  const DecodeResult result = Decode(DecodeOf(tokens, 10));
  EXPECT_EQ(result.ids, Expected(tokens, 10));
  EXPECT_EQ(result.started.cached_tokens(), 64u);
  EXPECT_NE(result.started.miss_reason().find("boundary 192: "), std::string::npos)
      << result.started.miss_reason();
}

TEST_F(FrontDecodeTest, DamageFoundByThePrefillBeforeItIsSaid) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(200), {64}));
  Damage(prefill.done.state());
  const std::vector<uint32_t> tokens = Tokens(kDecodeDirectTokensMax + 1000);
  const DecodeResult result = Decode(DecodeOf(tokens, 5));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.ids, Expected(tokens, 5));
  EXPECT_EQ(result.started.cached_tokens(), 64u);
  EXPECT_NE(result.started.miss_reason().find("boundary 192: "), std::string::npos)
      << result.started.miss_reason();
}

TEST_F(FrontDecodeTest, AnUnreadableStartIsAMiss) {
  const std::vector<uint32_t> tokens = Tokens(200);
  ASSERT_TRUE(Prefill(PrefillOf(tokens)).status.ok());
  engine_->OnSubmit([] {
    deltafill::testing::FaultyEngine::reads_fail = true;
    return absl::OkStatus();
  });
  const DecodeResult result = Decode(DecodeOf(tokens, 10));
  deltafill::testing::FaultyEngine::reads_fail = false;
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.ids, Expected(tokens, 10));
  EXPECT_EQ(result.started.cached_tokens(), 0u);
  EXPECT_NE(result.started.miss_reason().find("injected read error"), std::string::npos)
      << result.started.miss_reason();
}

TEST_F(FrontDecodeTest, ADamagedHandleIsNeverAnsweredFrom) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(200), {64}));
  Damage(prefill.done.state());
  const DecodeResult result = Decode(DecodeFrom(prefill.done.state(), 10));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DATA_LOSS)
      << result.status.error_message();
  EXPECT_TRUE(result.ids.empty());
}

TEST_F(FrontDecodeTest, CancelStopsIt) {
  engine_->hold = true;
  const auto context = By("default");
  const auto stream = stub_->Decode(context.get(), DecodeOf(Tokens(10), 3));
  v1::DecodeEvent event;
  while (stream->Read(&event) && !event.has_token()) {
  }
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(deltafill::test::Eventually([&] { return engine_->PromptsRunning() == 0; }));
  EXPECT_EQ(engine_->cancels, 1);
}

}  // namespace
}  // namespace deltafill::coordinator
