// Workers that answer but get no further.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/scheduler_harness.h"

namespace deltafill::coordinator::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.progress_timeout_s = 60.0;
  options.heartbeat_timeout_s = 1e9;
  SchedulerHarness harness(options);
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

}  // namespace
}  // namespace deltafill::coordinator::test
