// Prefill and Lookup over a real channel: cold, resumed, checkpoints, tenants.
#include <gtest/gtest.h>

#include "coordinator/front/handle.h"
#include "coordinator/front/limits.h"
#include "tests/coordinator/front_fixture.h"

namespace deltafill::coordinator {
namespace {

class FrontPrefillTest : public FrontTest {
 protected:
  static std::string ExpectedLogits(const std::vector<uint32_t>& tokens) {
    return LogitsOf(HashTokens(0, tokens));
  }
  static std::vector<uint64_t> Boundaries(const std::vector<v1::CheckpointDurable>& checkpoints) {
    std::vector<uint64_t> boundaries;
    for (const auto& checkpoint : checkpoints) boundaries.push_back(checkpoint.boundary());
    return boundaries;
  }
};

TEST_F(FrontPrefillTest, ColdThenResumedAtEveryLength) {
  for (size_t count : {1, 2, 63, 64, 65, 127, 128, 129, 192, 193, 1000}) {
    const std::vector<uint32_t> tokens = Tokens(count, static_cast<uint32_t>(count));
    const PrefillResult cold = Prefill(PrefillOf(tokens));
    ASSERT_TRUE(cold.status.ok()) << cold.status.error_message();
    const uint64_t boundary = (count - 1) / 64 * 64;
    EXPECT_EQ(cold.logits, ExpectedLogits(tokens)) << count;
    EXPECT_EQ(cold.accepted.tokens(), count);
    EXPECT_EQ(cold.accepted.cached_tokens(), 0u);
    EXPECT_EQ(cold.accepted.miss_reason(),
              boundary == 0 ? "" : "no state of this prefix is stored");
    EXPECT_EQ(cold.done.boundary(), boundary);
    EXPECT_EQ(cold.done.tokens(), count);
    EXPECT_EQ(cold.done.usage().computed_tokens(), count);
    EXPECT_EQ(cold.done.schedule(), "wavefront");
    EXPECT_EQ(cold.order.front(), 'a');
    EXPECT_EQ(cold.order.back(), 'd');

    const auto ref = DecodePrefixRef(cold.done.state(), "state");
    ASSERT_TRUE(ref.ok());
    EXPECT_EQ(ref->zero, boundary == 0);
    EXPECT_EQ(ref->tail, std::vector<uint32_t>(tokens.begin() + boundary, tokens.end()));

    const PrefillResult warm = Prefill(PrefillOf(tokens));
    ASSERT_TRUE(warm.status.ok());
    EXPECT_EQ(warm.logits, cold.logits);
    EXPECT_EQ(warm.done.state(), cold.done.state());
    EXPECT_EQ(warm.done.cached_tokens(), boundary);
    EXPECT_EQ(warm.done.miss_reason(), "");
    EXPECT_EQ(warm.done.usage().computed_tokens(), count - boundary) << "the tail only";
    EXPECT_TRUE(engine_->prefills().back().boundaries.empty()) << "nothing needs to be stored";

    const v1::LookupResponse lookup = Lookup(tokens);
    EXPECT_EQ(lookup.boundary(), boundary);
    EXPECT_EQ(lookup.miss_reason(), "");
    EXPECT_EQ(lookup.state().empty(), boundary == 0);
  }
}

TEST_F(FrontPrefillTest, NothingIsComputedWhenNothingIsMissing) {
  v1::PrefillRequest request = PrefillOf(Tokens(200), {64});
  request.set_return_logits(false);
  ASSERT_TRUE(Prefill(request).status.ok());
  const size_t submitted = engine_->prefills().size();
  const PrefillResult again = Prefill(request);
  ASSERT_TRUE(again.status.ok());
  EXPECT_EQ(engine_->prefills().size(), submitted);
  EXPECT_EQ(again.order, "acd");
  EXPECT_EQ(again.accepted.plan().schedule(), "none");
  EXPECT_EQ(again.done.schedule(), "none");
  EXPECT_EQ(again.done.cached_tokens(), 192u);
  EXPECT_TRUE(again.checkpoints.at(0).already_stored());
}

TEST_F(FrontPrefillTest, ALongerPromptResumesFromTheShorterOne) {
  ASSERT_TRUE(Prefill(PrefillOf(Tokens(300))).status.ok());
  const std::vector<uint32_t> longer = Tokens(1000);
  const PrefillResult result = Prefill(PrefillOf(longer));
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.logits, ExpectedLogits(longer));
  EXPECT_EQ(result.accepted.cached_tokens(), 256u);
  EXPECT_EQ(result.accepted.miss_reason(), "no state deeper than token 256 is stored");
  EXPECT_EQ(result.done.usage().computed_tokens(), 1000u - 256u);
}

TEST_F(FrontPrefillTest, ADifferentTokenEndsThePrefix) {
  ASSERT_TRUE(Prefill(PrefillOf(Tokens(300), {64, 128, 192})).status.ok());
  std::vector<uint32_t> changed = Tokens(300);
  changed[130] ^= 1;
  const PrefillResult result = Prefill(PrefillOf(changed));
  EXPECT_EQ(result.logits, ExpectedLogits(changed));
  EXPECT_EQ(result.accepted.cached_tokens(), 128u);
}

TEST_F(FrontPrefillTest, CheckpointsAreKeptMergedAndReported) {
  const std::vector<uint32_t> tokens = Tokens(320);  // a multiple of 64: boundary 256 and the end
  const PrefillResult result = Prefill(PrefillOf(tokens, {10, 70, 100, 256, 300, 320}));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(Boundaries(result.checkpoints), (std::vector<uint64_t>{64, 256, 320}));
  ASSERT_EQ(result.done.checkpoints_size(), 3);
  const uint64_t tails[] = {36, 44, 0};
  for (int i = 0; i < 3; ++i) {
    const auto& checkpoint = result.done.checkpoints(i);
    EXPECT_EQ(checkpoint.state(), result.checkpoints[i].state());
    EXPECT_FALSE(checkpoint.already_stored());
    EXPECT_GT(checkpoint.bytes(), 0u);
    const auto ref = DecodePrefixRef(checkpoint.state(), "state");
    ASSERT_TRUE(ref.ok());
    EXPECT_EQ(ref->tail.size(), tails[i]);
    v1::StateDescription description;
    ASSERT_TRUE(Get(checkpoint.state(), "default", true, &description).ok());
    EXPECT_EQ(description.boundary(), checkpoint.boundary());
    EXPECT_TRUE(description.verified());
  }
}

TEST_F(FrontPrefillTest, CheckpointEvery) {
  v1::PrefillRequest request = PrefillOf(Tokens(500));
  request.set_checkpoint_every(100);
  const PrefillResult result = Prefill(request);
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(Boundaries(result.checkpoints), (std::vector<uint64_t>{64, 192, 256, 384, 448}));
}

TEST_F(FrontPrefillTest, AMissingCheckpointBelowTheStoredStateIsMade) {
  const std::vector<uint32_t> tokens = Tokens(640);
  ASSERT_TRUE(Prefill(PrefillOf(tokens, {128})).status.ok());  // 128 and 576
  const PrefillResult result = Prefill(PrefillOf(tokens, {128, 320, 448}));
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.logits, ExpectedLogits(tokens));
  const PrefillWork work = engine_->prefills().back();
  EXPECT_EQ(work.start.boundary, 128u) << "the deepest one before the first that is missing";
  EXPECT_EQ(work.boundaries, (std::vector<uint64_t>{320, 448}));
  EXPECT_EQ(result.accepted.cached_tokens(), 128u);
  EXPECT_EQ(result.accepted.miss_reason(),
            "a state at token 576 is stored, but the checkpoint at token 320 is not");
  ASSERT_EQ(Boundaries(result.checkpoints), (std::vector<uint64_t>{128, 320, 448}));
  EXPECT_TRUE(result.checkpoints[0].already_stored());
  EXPECT_FALSE(result.checkpoints[1].already_stored());
  for (const auto& checkpoint : result.checkpoints) {
    v1::StateDescription description;
    EXPECT_TRUE(Get(checkpoint.state(), "default", true, &description).ok());
  }
  // Now all is there: only the tail.
  const PrefillResult again = Prefill(PrefillOf(tokens, {128, 320, 448}));
  EXPECT_EQ(again.done.usage().computed_tokens(), 64u);
  EXPECT_EQ(again.logits, result.logits);
}

TEST_F(FrontPrefillTest, AMissingCheckpointBeforeEverythingStartsAtZero) {
  const std::vector<uint32_t> tokens = Tokens(640);
  ASSERT_TRUE(Prefill(PrefillOf(tokens)).status.ok());
  const PrefillResult result = Prefill(PrefillOf(tokens, {64}));
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(engine_->prefills().back().start.boundary, 0u);
  EXPECT_EQ(engine_->prefills().back().boundaries, (std::vector<uint64_t>{64}));
  EXPECT_EQ(Boundaries(result.checkpoints), (std::vector<uint64_t>{64}));
}

TEST_F(FrontPrefillTest, NoResumeComputesAndCompares) {
  const std::vector<uint32_t> tokens = Tokens(200);
  ASSERT_TRUE(Prefill(PrefillOf(tokens, {64})).status.ok());
  v1::PrefillRequest request = PrefillOf(tokens, {64});
  request.set_no_resume(true);
  const PrefillResult result = Prefill(request);
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.done.cached_tokens(), 0u);
  EXPECT_EQ(result.done.miss_reason(), "no_resume was asked");
  EXPECT_EQ(result.done.usage().computed_tokens(), 200u);
  EXPECT_TRUE(result.checkpoints.at(0).already_stored());
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 0u);
}

TEST_F(FrontPrefillTest, ScheduleAndExactnessReachTheEngine) {
  v1::PrefillRequest request = PrefillOf(Tokens(10));
  request.set_exactness(v1::EXACTNESS_ANY);
  request.set_schedule(v1::SCHEDULE_WAVEFRONT);
  ASSERT_TRUE(Prefill(request).status.ok());
  EXPECT_TRUE(engine_->prefills().back().any_exactness);
  EXPECT_EQ(engine_->prefills().back().schedule, ScheduleChoice::kWavefront);
  EXPECT_TRUE(engine_->prefills().back().last_logits);
}

TEST_F(FrontPrefillTest, TextIsTokens) {
  const std::string text(100, 'x');
  v1::PrefillRequest request;
  request.mutable_prompt()->set_text(text);
  const PrefillResult by_text = Prefill(request);
  ASSERT_TRUE(by_text.status.ok()) << by_text.status.error_message();
  EXPECT_EQ(by_text.logits, "") << "not asked for";
  EXPECT_EQ(Lookup(std::vector<uint32_t>(100, 'x')).boundary(), 64u);
}

TEST_F(FrontPrefillTest, TenantsDoNotSeeEachOther) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const PrefillResult mine = Prefill(PrefillOf(tokens), "alpha");
  ASSERT_TRUE(mine.status.ok()) << mine.status.error_message();
  EXPECT_EQ(Lookup(tokens, "alpha").boundary(), 192u);
  EXPECT_EQ(Lookup(tokens, "beta").boundary(), 0u);
  const PrefillResult theirs = Prefill(PrefillOf(tokens), "beta");
  EXPECT_EQ(theirs.done.cached_tokens(), 0u);
  EXPECT_EQ(theirs.logits, mine.logits);
  EXPECT_NE(theirs.done.state(), mine.done.state());
}

TEST_F(FrontPrefillTest, OtherNumericsAreNamed) {
  const std::vector<uint32_t> tokens = Tokens(200);
  ASSERT_TRUE(Prefill(PrefillOf(tokens)).status.ok());
  engine_->SetModels({FakeModel("tiny", 1, "cpu.fake.2"), FakeModel()});
  const v1::LookupResponse lookup = Lookup(tokens);
  EXPECT_EQ(lookup.boundary(), 0u);
  EXPECT_EQ(lookup.miss_reason(),
            "the state at token 192 is stored under other numerics only (cpu.fake.1)");
  const PrefillResult result = Prefill(PrefillOf(tokens));
  EXPECT_EQ(result.accepted.cached_tokens(), 0u);
  EXPECT_EQ(result.accepted.miss_reason(), lookup.miss_reason());
  EXPECT_EQ(engine_->prefills().back().numerics, "cpu.fake.2");
}

TEST_F(FrontPrefillTest, BadRequestsComputeNothing) {
  const auto expect = [&](v1::PrefillRequest request, const std::string& field) {
    const PrefillResult result = Prefill(request);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(result.status.error_message().find(field), 0u) << result.status.error_message();
    EXPECT_EQ(result.order, "");
  };
  expect({}, "prompt");
  expect(PrefillOf({1, kVocabulary}), "prompt.tokens.ids[1]");
  expect(PrefillOf(Tokens(100), {101}), "checkpoint_at[0]");
  expect(PrefillOf(Tokens(100), {80, 70}), "checkpoint_at[1]");
  v1::PrefillRequest request = PrefillOf(Tokens(10));
  request.set_model("nobody");
  expect(request, "model");
  ServedModel limited = FakeModel();
  limited.position_max = 50;
  engine_->SetModels({limited});
  expect(PrefillOf(Tokens(51)), "prompt");
  const PrefillResult bad_tenant = Prefill(PrefillOf(Tokens(10)), "not a name");
  EXPECT_EQ(bad_tenant.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(engine_->prefills().empty());
}

TEST_F(FrontPrefillTest, AMillionTokensAreLookedUpAndSent) {
  const std::vector<uint32_t> tokens = Tokens(1'000'000);
  const v1::LookupResponse lookup = Lookup(tokens);
  EXPECT_EQ(lookup.tokens(), 1'000'000u);
  EXPECT_EQ(lookup.boundary(), 0u);
}

}  // namespace
}  // namespace deltafill::coordinator
