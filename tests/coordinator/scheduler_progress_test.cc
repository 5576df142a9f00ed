// Workers that answer but get no further.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/scheduler_harness.h"

namespace deltafill::coordinator::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SchedulerOptions WithoutHeartbeats(double progress_timeout_s) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.progress_timeout_s = progress_timeout_s;
  options.heartbeat_timeout_s = 1e9;
  return options;
}

// Workers 1 and 2 answer, but range 0 at worker 1 gets no further: range 1 waits for it.
TEST(SchedulerProgress, AStuckWorkerIsLostAndNotTheOneThatWaitsForIt) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.progress_timeout_s = 60.0;
  SchedulerHarness harness(options);
  harness.Attach(1);
  harness.Attach(2);
  PrefillWork work = harness.Prefill(512);
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  ASSERT_EQ(harness.ranges[0].first, 1u);
  ASSERT_EQ(harness.ranges[1].first, 2u);
  const AttemptRef attempt = harness.ranges[0].second.attempt;
  const auto pass = [&](double seconds) {
    for (double end_s = harness.now_s + seconds; harness.now_s < end_s;) {
      harness.now_s += 1.0;
      for (WorkerNumber worker : {1, 2}) harness.scheduler.OnHeartbeat(worker, 0, 0.0);
      harness.scheduler.Tick();
    }
  };
  // Slow work is not stuck: a layer each 50 s, then passes that report no layer.
  for (const uint32_t layers : {1, 1, 0, 0}) {
    pass(50.0);
    harness.scheduler.OnRangeProgress(1, attempt, 0, layers);
  }
  EXPECT_THAT(harness.closed, IsEmpty());
  // Nor is one whose queue of boundaries moves.
  for (uint64_t queued : {500, 400}) {
    pass(50.0);
    harness.scheduler.OnHeartbeat(1, queued, 0.0);
  }
  EXPECT_THAT(harness.closed, IsEmpty());
  pass(65.0);
  EXPECT_THAT(harness.closed, ElementsAre(1u));
  EXPECT_THAT(harness.scheduler.LastLoss(), HasSubstr("stuck"));
  std::erase_if(harness.ranges, [](const auto& given) { return given.first == 1u; });  // it is gone
  ASSERT_FALSE(harness.ranges.empty());
  for (const auto& [worker, order] : harness.ranges) {
    EXPECT_EQ(worker, 2u);
    EXPECT_EQ(order.attempt.attempt, 2u);
  }
  harness.FinishRanges();
  EXPECT_TRUE(record->status.ok()) << record->status;
}

// Range 0 is done: it is range 1 that gets no further, whoever waits for it.
TEST(SchedulerProgress, AStuckWorkerIsLostInTheMiddle) {
  SchedulerHarness harness(WithoutHeartbeats(60.0));
  for (WorkerNumber worker : {1, 2, 3}) harness.Attach(worker);
  PrefillWork work = harness.Prefill(1024);
  work.schedule = ScheduleChoice::kWavefront;
  const auto record = harness.Submit(work);
  harness.now_s = 59.0;
  harness.scheduler.Tick();
  harness.FinishRange();
  harness.now_s = 118.0;
  harness.scheduler.Tick();
  EXPECT_THAT(harness.closed, IsEmpty());
  harness.now_s = 120.0;
  harness.scheduler.Tick();
  EXPECT_THAT(harness.closed, ElementsAre(2u));
  harness.FinishRanges();
  EXPECT_TRUE(record->status.ok()) << record->status;
}

class StuckSingleWork : public ::testing::Test {
 protected:
  std::shared_ptr<PromptRecord> SubmitDecode(SchedulerHarness& harness) {
    auto record = std::make_shared<PromptRecord>();
    EXPECT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), record).ok());
    return record;
  }
};

// What has produced nothing goes to another worker; what has, ends with the reason.
TEST_F(StuckSingleWork, GeneratingIsLostWithItsWorker) {
  SchedulerHarness harness(WithoutHeartbeats(60.0));
  harness.Attach(1);
  const auto begun = SubmitDecode(harness);
  const auto ready = SubmitDecode(harness);
  ASSERT_EQ(harness.decodes.size(), 2u);
  const AttemptRef attempt = harness.decodes[0].second.attempt;
  harness.Attach(2);
  harness.now_s = 1000.0;  // loading a state may take long
  harness.scheduler.Tick();
  harness.scheduler.OnDecodeReady(1, attempt);
  harness.scheduler.OnDecodeReady(1, harness.decodes[1].second.attempt);
  for (double now_s : {1050.0, 1100.0, 1150.0}) {  // slow, and not stuck
    harness.now_s = now_s;
    harness.scheduler.OnDecodeToken(1, attempt, 5);
    harness.scheduler.Tick();
  }
  harness.now_s = 1209.0;
  harness.scheduler.Tick();
  EXPECT_THAT(harness.closed, IsEmpty());
  harness.now_s = 1211.0;
  harness.scheduler.Tick();
  EXPECT_THAT(harness.closed, ElementsAre(1u));
  EXPECT_EQ(begun->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(begun->status.message()), HasSubstr("stuck: a decoding that had begun"));
  ASSERT_EQ(harness.decodes.size(), 3u);
  EXPECT_EQ(harness.decodes[2].first, 2u);
  harness.scheduler.OnDecodeFinished(2, harness.decodes[2].second.attempt, "length", {});
  EXPECT_TRUE(ready->status.ok()) << ready->status;
}

TEST_F(StuckSingleWork, WhatMaySaveOrIsDoneIsNotJudgedAndZeroMeansNever) {
  SchedulerHarness harness(WithoutHeartbeats(60.0));
  harness.Attach(1);
  DecodeWork work = harness.Decode();
  work.save_state = true;
  ASSERT_TRUE(harness.scheduler.SubmitDecode(work, std::make_shared<PromptRecord>()).ok());
  work = harness.Decode();
  work.max_tokens = 1;
  ASSERT_TRUE(harness.scheduler.SubmitDecode(work, std::make_shared<PromptRecord>()).ok());
  for (const auto& [worker, order] : harness.decodes) {
    harness.scheduler.OnDecodeReady(worker, order.attempt);
    harness.scheduler.OnDecodeToken(worker, order.attempt, 5);
  }
  harness.now_s = 1000.0;
  harness.scheduler.Tick();
  EXPECT_THAT(harness.closed, IsEmpty());
  SchedulerHarness patient(WithoutHeartbeats(0.0));
  patient.Attach(1);
  SubmitDecode(patient);
  patient.scheduler.OnDecodeReady(1, patient.decodes[0].second.attempt);
  patient.now_s = 1e6;
  patient.scheduler.Tick();
  EXPECT_THAT(patient.closed, IsEmpty());
}

}  // namespace
}  // namespace deltafill::coordinator::test
