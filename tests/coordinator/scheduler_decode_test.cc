// Decodes and exports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/scheduler_harness.h"

namespace deltafill::coordinator::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

TEST(SchedulerDecode, RunsFromReadyToFinish) {
  SchedulerHarness harness;
  harness.Attach(1);
  const auto record = std::make_shared<PromptRecord>();
  ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), record).ok());
  ASSERT_EQ(harness.decodes.size(), 1u);
  const AttemptRef attempt = harness.decodes[0].second.attempt;
  EXPECT_EQ(attempt.attempt, 1u);
  harness.scheduler.OnDecodeReady(1, attempt);
  harness.scheduler.OnDecodeToken(1, attempt, 5);
  harness.scheduler.OnDecodeToken(1, attempt, 6);
  StoredBoundary saved;
  saved.boundary = 64;
  saved.parts = {{SimulatedCluster::PartOf(64), PartKind::kRecurrent, 1, 9}};
  harness.scheduler.OnDecodeFinished(1, attempt, "stop", saved);
  EXPECT_EQ(record->ready, 1);
  EXPECT_THAT(record->tokens, ElementsAre(5u, 6u));
  EXPECT_EQ(record->boundaries.count(64), 1u);
  EXPECT_TRUE(record->status.ok());
  EXPECT_EQ(record->finish_reason, "stop");
  EXPECT_EQ(harness.scheduler.Workers()[0].decodes_running, 0u);
}

TEST(SchedulerDecode, GoesToTheLeastLoadedWorkerAndWaitsForRoom) {
  SchedulerOptions options = SchedulerHarness::DefaultOptions();
  options.prompts_running_max = 1;
  SchedulerHarness harness(options);
  for (const WorkerNumber number : {1, 2}) {
    WorkerProfile profile = harness.Profile(number);
    profile.decode_batch_max = 1;
    harness.scheduler.AttachWorker(profile);
  }
  harness.Submit(harness.Prefill(64));
  harness.Submit(harness.Prefill(64));  // waits, and holds no decode up
  const WorkerNumber busy = harness.ranges[0].first;
  std::vector<std::shared_ptr<PromptRecord>> records;
  for (int i = 0; i < 3; ++i) {
    records.push_back(std::make_shared<PromptRecord>());
    ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), records.back()).ok());
  }
  ASSERT_EQ(harness.decodes.size(), 2u);
  EXPECT_EQ(harness.decodes[0].first, 3 - busy);
  EXPECT_EQ(harness.decodes[1].first, busy);
  EXPECT_EQ(harness.scheduler.PromptsQueued(), 2u);
  harness.scheduler.OnDecodeFinished(busy, harness.decodes[1].second.attempt, "length", {});
  ASSERT_EQ(harness.decodes.size(), 3u);
  EXPECT_EQ(harness.decodes[2].first, busy);
}

TEST(SchedulerDecode, IsTriedAgainOnlyBeforeItsFirstToken) {
  SchedulerHarness harness;
  harness.Attach(1);
  harness.Attach(2);
  const auto record = std::make_shared<PromptRecord>();
  ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), record).ok());
  const WorkerNumber first = harness.decodes[0].first;
  harness.scheduler.OnDecodeReady(first, harness.decodes[0].second.attempt);
  harness.Lose(first);
  ASSERT_EQ(harness.decodes.size(), 2u);
  EXPECT_EQ(harness.decodes[1].first, 3 - first);
  EXPECT_EQ(harness.decodes[1].second.attempt.attempt, 2u);
  harness.scheduler.OnDecodeReady(3 - first, harness.decodes[1].second.attempt);
  EXPECT_EQ(record->ready, 1) << "said once";
  harness.scheduler.OnDecodeToken(3 - first, harness.decodes[1].second.attempt, 5);
  harness.Lose(3 - first);
  EXPECT_TRUE(absl::IsUnavailable(record->status)) << record->status;
}

TEST(SchedulerDecode, FailuresAndCancelling) {
  SchedulerHarness harness;
  harness.Attach(1);
  auto record = std::make_shared<PromptRecord>();
  ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), record).ok());
  AttemptFailure failure;
  failure.status = absl::NotFoundError("part x");
  failure.stored_state_lost = true;
  harness.scheduler.OnAttemptFailed(1, harness.decodes[0].second.attempt, failure);
  EXPECT_TRUE(absl::IsDataLoss(record->status));

  record = std::make_shared<PromptRecord>();
  const auto number = harness.scheduler.SubmitDecode(harness.Decode(), record);
  ASSERT_TRUE(number.ok());
  const AttemptRef attempt = harness.decodes.back().second.attempt;
  harness.scheduler.Cancel(*number);
  EXPECT_TRUE(absl::IsCancelled(record->status));
  EXPECT_THAT(harness.aborts, Contains(std::make_pair(WorkerNumber{1}, attempt)));
  StoredBoundary saved;
  saved.boundary = 64;
  saved.parts = {{SimulatedCluster::PartOf(64), PartKind::kRecurrent, 1, 77}};
  harness.scheduler.OnDecodeFinished(1, attempt, "length", saved);
  EXPECT_THAT(harness.released, ElementsAre(77u));

  DecodeWork empty = harness.Decode();
  empty.tokens.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(harness.scheduler.SubmitDecode(empty, record).status()));
}

TEST(SchedulerExport, GivesItsPartsToTheCaller) {
  SchedulerHarness harness;
  harness.Attach(1);
  ExportWork work;
  work.fingerprint = harness.Decode().fingerprint;
  work.numerics = "exact";
  work.tokens = {1};
  const auto record = std::make_shared<PromptRecord>();
  ASSERT_TRUE(harness.scheduler.SubmitExport(work, record).ok());
  ASSERT_EQ(harness.exports.size(), 1u);
  harness.scheduler.OnExportReady(1, harness.exports[0].second.attempt,
                                  {{SimulatedCluster::PartOf(1), PartKind::kLogits, 1, 5}});
  EXPECT_TRUE(record->status.ok());
  // A second one, of nobody, is given back.
  harness.scheduler.OnExportReady(1, harness.exports[0].second.attempt,
                                  {{SimulatedCluster::PartOf(1), PartKind::kLogits, 1, 6}});
  EXPECT_THAT(harness.released, ElementsAre(6u));
}

TEST(SchedulerDecode, FinishAllEndsEverything) {
  SchedulerHarness harness;
  harness.Attach(1);
  const auto decode = std::make_shared<PromptRecord>();
  ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), decode).ok());
  const auto prefill = harness.Submit(harness.Prefill(1000));
  harness.scheduler.FinishAll(absl::UnavailableError("stopping"));
  EXPECT_TRUE(absl::IsUnavailable(decode->status));
  EXPECT_TRUE(absl::IsUnavailable(prefill->status));
  EXPECT_EQ(harness.scheduler.PromptsRunning() + harness.scheduler.PromptsQueued(), 0u);
}

}  // namespace
}  // namespace deltafill::coordinator::test
