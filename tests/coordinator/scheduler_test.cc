// Prefills, step by step: admission, attempts, losses, recovery.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/scheduler_harness.h"

namespace deltafill::coordinator::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

AttemptFailure Failure(const absl::Status& status, bool stored_state_lost, bool peer_lost) {
  AttemptFailure failure;
  failure.status = status;
  failure.stored_state_lost = stored_state_lost;
  failure.peer_lost = peer_lost;
  return failure;
}

TEST(Scheduler, RefusesWhatItCannotTake) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.prompts_running_max = 1;
  options.prompts_queued_max = 2;
  SchedulerHarness harness(options);
  harness.Submit(harness.Prefill(100));
  EXPECT_TRUE(absl::IsUnavailable(harness.submitted)) << harness.submitted;
  harness.Attach(1);
  PrefillWork bad = harness.Prefill(100, {65});
  harness.Submit(bad);
  EXPECT_THAT(std::string(harness.submitted.message()), HasSubstr("boundaries: 65"));
  harness.Submit(harness.Prefill(100, {128}));
  EXPECT_TRUE(absl::IsInvalidArgument(harness.submitted));
  harness.Submit(harness.Prefill(0));
  EXPECT_THAT(std::string(harness.submitted.message()), HasSubstr("tokens"));
  bad = harness.Prefill(100);
  bad.tokens_begin = 64;
  harness.Submit(bad);
  EXPECT_THAT(std::string(harness.submitted.message()), HasSubstr("tokens_begin"));
  bad.tokens_begin = 0;
  bad.start.boundary = 128;
  bad.start.parts.resize(1);
  harness.Submit(bad);
  EXPECT_THAT(std::string(harness.submitted.message()), HasSubstr("start.boundary"));
  for (int i = 0; i < 3; ++i) {
    harness.Submit(harness.Prefill(100));
    ASSERT_TRUE(harness.submitted.ok()) << harness.submitted;
  }
  harness.Submit(harness.Prefill(100));
  EXPECT_TRUE(absl::IsResourceExhausted(harness.submitted)) << harness.submitted;
  EXPECT_EQ(harness.scheduler.PromptsRunning(), 1u);
  EXPECT_EQ(harness.scheduler.PromptsQueued(), 2u);
  harness.FinishRanges();
  EXPECT_EQ(harness.scheduler.PromptsRunning(), 0u);
}

TEST(Scheduler, OtherNumericsNeverShareAPrompt) {
  SchedulerHarness harness;
  harness.scheduler.AttachWorker(harness.Profile(1, "other"));
  harness.Submit(harness.Prefill(100));
  EXPECT_TRUE(absl::IsUnavailable(harness.submitted));
  harness.Attach(2);
  PrefillWork work = harness.Prefill(10'000);
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  for (const auto& [worker, order] : harness.ranges) EXPECT_EQ(worker, 2u);
  harness.FinishRanges();
  EXPECT_TRUE(record->status.ok());
  EXPECT_EQ(harness.scheduler.Models().size(), 2u);
}

TEST(Scheduler, OneShortPrompt) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.now_s = 10.0;
  const auto record = harness.Submit(harness.Prefill(100, {64}));
  ASSERT_EQ(harness.ranges.size(), 1u);
  const RangeOrder order = harness.ranges[0].second;
  EXPECT_EQ(order.span, (TokenRange{0, 100}));
  EXPECT_EQ(order.source.kind, SourceOrder::Kind::kZero);
  EXPECT_FALSE(order.hand_on);
  EXPECT_TRUE(order.last_logits);
  EXPECT_THAT(order.boundaries, ElementsAre(BoundaryOrder{64, false}));
  harness.now_s = 12.0;
  harness.scheduler.OnRangeProgress(1, order.attempt, 0, 1);
  EXPECT_EQ(record->progress, 50u);
  harness.FinishRange(false);
  EXPECT_EQ(record->progress, 100u);
  EXPECT_EQ(record->logits, 1);
  EXPECT_FALSE(record->finished) << "the boundary is not stored yet";
  harness.Store(1, order.attempt, 64);
  EXPECT_TRUE(record->finished);
  EXPECT_TRUE(record->status.ok());
  EXPECT_EQ(record->timings.tokens_computed, 100u);
  EXPECT_NEAR(record->timings.compute_s, 2.0, 1e-9);
  EXPECT_THAT(harness.released, IsEmpty()) << "the caller's leases are the caller's";
}

TEST(Scheduler, WorkerThatAttachesIsUsedFromTheNextPromptOn) {
  SchedulerHarness harness;
  harness.Attach(1);
  PrefillWork work = harness.Prefill(2000);
  work.schedule = ScheduleChoice::kWavefront;
  harness.Submit(work);
  harness.Attach(2);
  while (!harness.ranges.empty()) {
    EXPECT_EQ(harness.ranges[0].first, 1u);
    harness.FinishRange();
  }
  harness.Submit(work);
  EXPECT_EQ(harness.ranges.at(0).second.next, 3u - harness.ranges[0].first);
}

// Workers that outlive a coordinator never meet the same number again.
TEST(Scheduler, PromptsAreNumberedFromTheOptionOn) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.prompt_last = uint64_t{1} << 60;
  SchedulerHarness harness(options);
  harness.Attach(1);
  harness.Submit(harness.Prefill(100));
  harness.Submit(harness.Prefill(100));
  EXPECT_EQ(harness.ranges.at(0).second.attempt.prompt, (uint64_t{1} << 60) + 1);
  EXPECT_EQ(harness.ranges.at(1).second.attempt.prompt, (uint64_t{1} << 60) + 2);
}

TEST(Scheduler, RecoveryBoundariesReplaceEachOtherAndSaveALostPrompt) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.recovery_interval_s = 30.0;
  SchedulerHarness harness(options);
  harness.Attach(1);
  const auto record = harness.Submit(harness.Prefill(64 * 40));
  harness.Attach(2);
  harness.now_s = 31.0;
  std::vector<uint64_t> recovery;
  for (int i = 0; i < 12; ++i) {
    for (const BoundaryOrder& boundary : harness.ranges[0].second.boundaries) {
      EXPECT_TRUE(boundary.recovery);
      recovery.push_back(boundary.boundary);
    }
    harness.now_s += 8.0;
    harness.scheduler.OnHeartbeat(1, 0, 0.0);
    harness.scheduler.OnHeartbeat(2, 0, 0.0);
    harness.FinishRange();
  }
  ASSERT_GE(recovery.size(), 2u);
  // All but the newest were released.
  for (size_t i = 0; i + 1 < recovery.size(); ++i) {
    EXPECT_THAT(harness.released, Contains(SchedulerHarness::LeaseOf(recovery[i], 1)));
  }
  EXPECT_THAT(harness.released, Not(Contains(SchedulerHarness::LeaseOf(recovery.back(), 1))));
  harness.now_s += 125.0;
  harness.scheduler.OnHeartbeat(1, 0, 0.0);
  harness.scheduler.OnHeartbeat(2, 0, 0.0);
  harness.scheduler.Tick();
  EXPECT_THAT(harness.renewed, Contains(SchedulerHarness::LeaseOf(recovery.back(), 1)));

  harness.Lose(1);
  ASSERT_FALSE(harness.ranges.empty());
  const auto [worker, order] = harness.ranges[0];
  EXPECT_EQ(worker, 2u);
  EXPECT_EQ(order.attempt.attempt, 2u);
  EXPECT_EQ(order.span.first_token, recovery.back());
  EXPECT_EQ(order.source.kind, SourceOrder::Kind::kStored);
  EXPECT_THAT(order.source.part_ids, ElementsAre(SimulatedCluster::PartOf(recovery.back())));
  harness.FinishRanges();
  EXPECT_TRUE(record->status.ok()) << record->status;
  EXPECT_EQ(record->attempt, 2u);
  EXPECT_THAT(harness.released, Contains(SchedulerHarness::LeaseOf(recovery.back(), 1)));
}

TEST(Scheduler, WhatWasDeliveredIsNotAskedForAgain) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(640, {128, 256, 512});
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  harness.FinishRange();                 // stores 128
  harness.FinishRange(/*store=*/false);  // 256 is still being saved
  while (!harness.ranges.empty()) harness.FinishRange();
  EXPECT_EQ(record->logits, 1);
  EXPECT_FALSE(record->finished);
  const WorkerNumber saver = 2;
  harness.Lose(saver);
  // From 128 to 256 only: nothing after it is missing, and no logits.
  ASSERT_EQ(harness.ranges.size(), 1u);
  const RangeOrder order = harness.ranges[0].second;
  EXPECT_EQ(order.span, (TokenRange{128, 128}));
  EXPECT_THAT(order.boundaries, ElementsAre(BoundaryOrder{256, false}));
  EXPECT_FALSE(order.last_logits);
  harness.FinishRanges();
  EXPECT_TRUE(record->finished && record->status.ok());
  EXPECT_EQ(record->logits, 1);
  EXPECT_EQ(record->boundaries.size(), 3u);
  EXPECT_THAT(record->faults, IsEmpty());
}

TEST(Scheduler, ResultsOfAnAttemptGivenUpAreTaken) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(640, {128});
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  const auto [first, order] = harness.ranges[0];
  harness.FinishRange(/*store=*/false);
  harness.Lose(3 - first);
  ASSERT_EQ(record->attempt, 2u);
  harness.Store(first, order.attempt, 128);  // of attempt 1
  EXPECT_EQ(record->boundaries.count(128), 1u);
  harness.FinishRanges();  // attempt 2 stores it too: the second lease is given back
  EXPECT_TRUE(record->status.ok());
  EXPECT_THAT(record->faults, IsEmpty());
  EXPECT_THAT(harness.released, ElementsAre(SchedulerHarness::LeaseOf(128, 2)));
}

TEST(Scheduler, DamagedStartStates) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(640, {128, 256});
  work.schedule = ScheduleChoice::kWavefront;
  auto record = harness.Submit(work);
  harness.FinishRange();
  harness.FinishRange();
  harness.Lose(2);
  ASSERT_EQ(harness.ranges[0].second.span.first_token, 256u);
  const AttemptFailure damaged = Failure(absl::DataLossError("part x"), true, false);
  harness.scheduler.OnAttemptFailed(1, harness.ranges[0].second.attempt, damaged);
  ASSERT_EQ(harness.ranges[0].second.span.first_token, 128u) << "an earlier one is left";
  harness.scheduler.OnAttemptFailed(1, harness.ranges[0].second.attempt, damaged);
  ASSERT_EQ(harness.ranges[0].second.span.first_token, 0u);
  harness.FinishRanges();
  EXPECT_TRUE(record->status.ok()) << record->status;
  EXPECT_THAT(record->faults, IsEmpty());

  work.start.boundary = 64;
  work.start.parts = {{SimulatedCluster::PartOf(64), PartKind::kRecurrent, 1}};
  record = harness.Submit(work);
  harness.scheduler.OnAttemptFailed(1, harness.ranges[0].second.attempt, damaged);
  EXPECT_TRUE(absl::IsDataLoss(record->status)) << record->status;
}

TEST(Scheduler, PeerThatCannotBeReached) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.failures_max = 3;
  options.heartbeat_timeout_s = 1e9;
  SchedulerHarness harness(options);
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(640);
  work.schedule = ScheduleChoice::kWavefront;
  auto record = harness.Submit(work);
  const AttemptFailure unreachable = Failure(absl::UnavailableError("peer 2"), false, true);
  const AttemptRef first = harness.ranges[0].second.attempt;
  harness.scheduler.OnAttemptFailed(1, first, unreachable);
  EXPECT_THAT(harness.ranges, IsEmpty());
  EXPECT_THAT(harness.aborts, Contains(std::make_pair(WorkerNumber{2}, first)));
  harness.scheduler.Tick();
  EXPECT_THAT(harness.ranges, IsEmpty()) << "it waits for the loss to be noticed";
  harness.Lose(2);
  ASSERT_FALSE(harness.ranges.empty()) << "and goes on when it is";
  harness.FinishRanges();
  EXPECT_TRUE(record->status.ok());

  harness.Attach(3);
  record = harness.Submit(work);
  for (int i = 0; i < 4; ++i) {
    ASSERT_FALSE(record->finished);
    ASSERT_FALSE(harness.ranges.empty()) << i;
    harness.scheduler.OnAttemptFailed(1, harness.ranges[0].second.attempt, unreachable);
    harness.now_s += options.peer_retry_s;
    harness.scheduler.Tick();
  }
  EXPECT_TRUE(absl::IsUnavailable(record->status)) << record->status;
  EXPECT_THAT(std::string(record->status.message()), HasSubstr("peer 2"));
}

TEST(Scheduler, NoWorkerLeft) {
  SchedulerHarness harness;
  harness.Attach(1);
  const auto saved = harness.Submit(harness.Prefill(640));
  harness.Lose(1);
  harness.now_s = 4.0;
  harness.scheduler.Tick();
  EXPECT_FALSE(saved->finished);
  harness.Attach(2);
  EXPECT_FALSE(harness.ranges.empty()) << "a worker attached within the grace";
  harness.Lose(2);
  harness.now_s = 10.0;
  harness.scheduler.Tick();
  EXPECT_TRUE(absl::IsUnavailable(saved->status)) << saved->status;
}

TEST(Scheduler, OtherFailuresEndThePrompt) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(640);
  work.schedule = ScheduleChoice::kWavefront;
  auto record = harness.Submit(work);
  const AttemptRef attempt = harness.ranges[0].second.attempt;
  harness.scheduler.OnAttemptFailed(
      1, attempt, Failure(absl::InternalError("layer 3 head 5: not finite"), false, false));
  EXPECT_EQ(record->status, absl::InternalError("layer 3 head 5: not finite"));
  EXPECT_THAT(harness.aborts, Contains(std::make_pair(WorkerNumber{2}, attempt)));
  EXPECT_EQ(harness.scheduler.PromptsRunning(), 0u);

  record = harness.Submit(harness.Prefill(64));
  const auto [worker, order] = harness.ranges[0];
  harness.scheduler.OnLastLogits(worker, order.attempt, "short");
  EXPECT_TRUE(absl::IsInternal(record->status)) << record->status;
}

TEST(Scheduler, SilentWorkerIsGivenUp) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  const auto record = harness.Submit(harness.Prefill(64));
  const WorkerNumber silent = harness.ranges[0].first;
  for (harness.now_s = 1.0; harness.now_s < 12.0; harness.now_s += 1.0) {
    harness.scheduler.OnHeartbeat(3 - silent, 0, 0.0);
    harness.scheduler.Tick();
  }
  EXPECT_THAT(harness.closed, ElementsAre(silent));
  ASSERT_EQ(harness.ranges.size(), 2u);
  EXPECT_EQ(harness.ranges[1].first, 3 - silent);
  EXPECT_EQ(record->attempt, 2u);
}

TEST(Scheduler, CancelAbortsEverywhereAndStopsReporting) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(640, {128});
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  const AttemptRef attempt = harness.ranges[0].second.attempt;
  harness.scheduler.Cancel(harness.last);
  EXPECT_TRUE(absl::IsCancelled(record->status));
  EXPECT_EQ(harness.aborts.size(), 2u);
  harness.Store(1, attempt, 128);
  EXPECT_THAT(record->boundaries, IsEmpty());
  EXPECT_THAT(harness.released, ElementsAre(SchedulerHarness::LeaseOf(128, 1)));
  EXPECT_THAT(record->faults, IsEmpty());
}

TEST(Scheduler, DrainedWorkerFinishesWhatWasPromised) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(128 * 12);
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  harness.scheduler.DrainWorker(2);
  const size_t given = harness.ranges.size();
  int to_drained = 0;
  while (!harness.ranges.empty()) {
    to_drained += harness.ranges[0].first == 2 ? 1 : 0;
    harness.FinishRange();
  }
  EXPECT_LE(to_drained, static_cast<int>(given));
  EXPECT_THAT(harness.drains, ElementsAre(WorkerNumber{2}));
  EXPECT_TRUE(record->status.ok());
  EXPECT_EQ(record->attempt, 1u) << "nothing was computed twice";
  harness.scheduler.OnDrained(2);
  harness.scheduler.LoseWorker(2, "drained");
  harness.Submit(work);
  for (const auto& [worker, order] : harness.ranges) EXPECT_EQ(worker, 1u);
}

}  // namespace
}  // namespace deltafill::coordinator::test
