// What a caller sees when something goes wrong: damage, wrong bits, cancel, deadlines, full queues.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "coordinator/front/handle.h"
#include "coordinator/front/prompt_session.h"
#include "tests/coordinator/front_fixture.h"
#include "tests/statestore/store_fixture.h"
#include "tests/testing/eventually.h"

namespace deltafill::coordinator {
namespace {

using deltafill::test::Eventually;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class FrontFailureTest : public FrontTest {
 protected:
  static std::string ExpectedLogits(const std::vector<uint32_t>& tokens) {
    return LogitsOf(HashTokens(0, tokens));
  }
};

TEST_F(FrontFailureTest, ADamagedPartIsAMissWithAReasonAndTheAnswerIsRight) {
  const std::vector<uint32_t> tokens = Tokens(400);
  const PrefillResult first = Prefill(PrefillOf(tokens, {128}));
  ASSERT_TRUE(first.status.ok());
  Damage(first.done.state());  // boundary 384
  const PrefillResult result = Prefill(PrefillOf(tokens));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.logits, ExpectedLogits(tokens));
  EXPECT_EQ(result.done.cached_tokens(), 128u);
  EXPECT_NE(result.done.miss_reason().find("boundary 384: "), std::string::npos)
      << result.done.miss_reason();
  EXPECT_GE(store_->GetStats()->quarantined_parts, 1u);
  // It is whole again, stored by the recomputation.
  const PrefillResult healed = Prefill(PrefillOf(tokens));
  EXPECT_EQ(healed.done.cached_tokens(), 384u);
  EXPECT_EQ(healed.logits, first.logits);
}

TEST_F(FrontFailureTest, DamageIsFoundWhereNobodyComputesFromTheState) {
  v1::PrefillRequest request = PrefillOf(Tokens(400), {128});
  request.set_return_logits(false);
  const PrefillResult first = Prefill(request);
  Damage(first.done.state());
  const PrefillResult again = Prefill(request);
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.accepted.cached_tokens(), 128u) << "nothing was read before";
  EXPECT_EQ(again.done.cached_tokens(), 128u);
  v1::StateDescription healed;
  EXPECT_TRUE(Get(first.done.state(), "default", /*verify=*/true, &healed).ok());
}

TEST_F(FrontFailureTest, LookupSaysWhatIsDamaged) {
  const std::vector<uint32_t> tokens = Tokens(400);
  const PrefillResult first = Prefill(PrefillOf(tokens, {128}));
  Damage(first.done.state());
  const v1::LookupResponse lookup = Lookup(tokens);
  EXPECT_EQ(lookup.boundary(), 128u);
  EXPECT_NE(lookup.miss_reason().find("384"), std::string::npos) << lookup.miss_reason();
}

TEST_F(FrontFailureTest, AStartStateLostAfterLookupIsLookedUpAgain) {
  const std::vector<uint32_t> tokens = Tokens(400);
  const PrefillResult first = Prefill(PrefillOf(tokens, {128}));
  ASSERT_TRUE(first.status.ok());
  std::atomic<bool> damaged = false;
  engine_->OnSubmit([&] {
    if (!damaged.exchange(true)) Damage(first.done.state());
    return absl::OkStatus();
  });
  const PrefillResult result = Prefill(PrefillOf(Tokens(500)));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.logits, ExpectedLogits(Tokens(500)));
  EXPECT_EQ(result.done.cached_tokens(), 128u);
  EXPECT_EQ(std::count(result.order.begin(), result.order.end(), 'a'), 1);
}

TEST_F(FrontFailureTest, AStartStateThatIsAlwaysLostEndsInDataLoss) {
  engine_->OnBlock([](uint64_t) { return absl::DataLossError("part is gone"); });
  const PrefillResult result = Prefill(PrefillOf(Tokens(400)));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(engine_->prefills().size(), 3u);
}

TEST_F(FrontFailureTest, AStartStateThatTheStoreCannotReadIsAMiss) {
  const std::vector<uint32_t> tokens = Tokens(400);
  ASSERT_TRUE(Prefill(PrefillOf(tokens)).status.ok());
  std::atomic<int> submissions = 0;
  engine_->OnSubmit([&] {
    deltafill::testing::FaultyEngine::reads_fail = ++submissions == 1;
    return absl::OkStatus();
  });
  const PrefillResult result = Prefill(PrefillOf(Tokens(500)));
  deltafill::testing::FaultyEngine::reads_fail = false;
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(submissions, 2);
  EXPECT_EQ(result.logits, ExpectedLogits(Tokens(500)));
  EXPECT_EQ(result.done.cached_tokens(), 0u);
}

// Not the start state's fault: it can be read, which is looked at only if a worker may have failed
// at it.
TEST_F(FrontFailureTest, WhatIsUnavailableForOtherReasonsIsNotTriedAgain) {
  const std::vector<uint32_t> tokens = Tokens(400);
  ASSERT_TRUE(Prefill(PrefillOf(tokens)).status.ok());
  const auto reads = [&](const absl::Status& failure) {
    engine_->OnBlock([failure](uint64_t) { return failure; });
    const size_t before = deltafill::testing::FaultyEngine::layer_reads;
    EXPECT_EQ(Prefill(PrefillOf(Tokens(500))).status.error_code(), grpc::StatusCode::UNAVAILABLE);
    return deltafill::testing::FaultyEngine::layer_reads - before;
  };
  const absl::Status failure = absl::UnavailableError("no worker is left");
  const size_t engine_reads = reads(failure);
  EXPECT_EQ(engine_->prefills().size(), 2u);
  EXPECT_GT(reads(FromWorker(failure)), engine_reads);
  EXPECT_EQ(engine_->prefills().size(), 3u);
}

TEST_F(FrontFailureTest, OtherBitsAreCountedAndTheOldStateStays) {
  const std::vector<uint32_t> tokens = Tokens(200);
  const PrefillResult first = Prefill(PrefillOf(tokens, {64}));
  v1::StateDescription before, after;
  ASSERT_TRUE(Get(first.done.state(), "default", false, &before).ok());
  engine_->scramble = 12345;
  v1::PrefillRequest request = PrefillOf(tokens, {64});
  request.set_no_resume(true);
  const PrefillResult result = Prefill(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_TRUE(result.checkpoints.at(0).already_stored());
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 2u);
  ASSERT_TRUE(Get(first.done.state(), "default", true, &after).ok());
  EXPECT_EQ(before.parts(0).id(), after.parts(0).id());
}

TEST_F(FrontFailureTest, EngineFailuresPassThrough) {
  for (const absl::Status& failure : {absl::InternalError("a non-finite value in layer 3, head 1"),
                                      absl::UnavailableError("no worker is left")}) {
    engine_->OnBlock([failure](uint64_t end) { return end > 128 ? failure : absl::OkStatus(); });
    const PrefillResult result = Prefill(PrefillOf(Tokens(300), {64}));
    EXPECT_EQ(static_cast<int>(result.status.error_code()), static_cast<int>(failure.code()));
    EXPECT_EQ(result.status.error_message(), failure.message());
    EXPECT_EQ(result.order.find('d'), std::string::npos);
    EXPECT_EQ(Lookup(Tokens(300)).boundary(), 64u) << "the finished checkpoint stays";
  }
}

TEST_F(FrontFailureTest, AFullQueueSaysWhenToTryAgain) {
  engine_->OnSubmit([] { return absl::ResourceExhaustedError("queue full: 8 prompts wait"); });
  const auto context = By("default");
  const auto stream = stub_->Prefill(context.get(), PrefillOf(Tokens(10)));
  v1::PrefillEvent event;
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto delay = context->GetServerTrailingMetadata().find("retry-delay-ms");
  ASSERT_NE(delay, context->GetServerTrailingMetadata().end());
  EXPECT_EQ(std::string(delay->second.data(), delay->second.size()), "1000") << "3 prompts wait";
}

TEST_F(FrontFailureTest, NoWorkers) {
  engine_->SetModels({});
  EXPECT_EQ(Prefill(PrefillOf(Tokens(10))).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(FrontFailureTest, CancelReachesTheEngineSoonAndCheckpointsStay) {
  engine_->hold = true;
  const auto context = By("default");
  const auto stream = stub_->Prefill(context.get(), PrefillOf(Tokens(300), {128}));
  v1::PrefillEvent event;
  while (stream->Read(&event) && !event.has_checkpoint()) {
  }
  const auto cancelled_at = steady_clock::now();
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return engine_->cancels == 1; }));
  EXPECT_LT(steady_clock::now() - cancelled_at, milliseconds(500));
  EXPECT_TRUE(Eventually([&] { return engine_->PromptsRunning() == 0; }));
  EXPECT_GE(Lookup(Tokens(300)).boundary(), 128u);
}

TEST_F(FrontFailureTest, ADeadlineStopsTheWork) {
  engine_->hold = true;
  const auto context = By("default");
  context->set_deadline(std::chrono::system_clock::now() + milliseconds(200));
  const auto stream = stub_->Prefill(context.get(), PrefillOf(Tokens(300)));
  v1::PrefillEvent event;
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return engine_->cancels == 1 && engine_->PromptsRunning() == 0; }));
}

TEST_F(FrontFailureTest, StoppingTheServerEndsRunningCalls) {
  engine_->hold = true;
  grpc::Status status;
  std::thread caller([&] { status = Prefill(PrefillOf(Tokens(300))).status; });
  ASSERT_TRUE(Eventually([&] { return engine_->PromptsRunning() == 1; }));
  const auto begin = steady_clock::now();
  server_->Stop(std::chrono::seconds(10));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_EQ(engine_->PromptsRunning(), 0u);
}

TEST_F(FrontFailureTest, ManyCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int> right = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (size_t count : {100u, 300u, 200u}) {
        const std::vector<uint32_t> tokens = Tokens(count, i % 3);
        const PrefillResult result =
            Prefill(PrefillOf(tokens, {64}), i % 2 == 0 ? "alpha" : "beta");
        right += result.status.ok() && result.logits == ExpectedLogits(tokens);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right, 24);
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 0u);
}

TEST(PromptSession, LogitsOvertakeWhatWaits) {
  PromptSession session;
  session.OnPlanned({}, 1);
  session.OnBoundaryStored({64, {}});
  session.OnLogits("x");
  PromptEvent event;
  ASSERT_TRUE(session.Next(milliseconds(0), &event));
  EXPECT_TRUE(std::holds_alternative<PlannedEvent>(event));
  ASSERT_TRUE(session.Next(milliseconds(0), &event));
  EXPECT_TRUE(std::holds_alternative<LogitsEvent>(event));
  ASSERT_TRUE(session.Next(milliseconds(0), &event));
  EXPECT_TRUE(std::holds_alternative<StoredBoundary>(event));
  EXPECT_FALSE(session.Next(milliseconds(1), &event));
}

TEST(PromptSession, KeepsOneProgress) {
  PromptSession session;
  for (uint64_t i = 0; i < 1000; ++i) session.OnProgress(i, 1);
  PromptEvent event;
  ASSERT_TRUE(session.Next(milliseconds(0), &event));
  EXPECT_EQ(std::get<ProgressEvent>(event).tokens_done, 999u);
  EXPECT_FALSE(session.Next(milliseconds(0), &event));
}

}  // namespace
}  // namespace deltafill::coordinator
