// Prompts and the room that workers have for their latents.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/coordinator/scheduler_harness.h"

namespace deltafill::coordinator::test {
namespace {

// Latents of 4,096 tokens a page; the workers have room for three pages.
TEST(SchedulerLatents, PromptsWaitForRoomAndAreRefusedOnlyIfItCanNeverSuffice) {
  SchedulerHarness harness;
  for (WorkerNumber number : {1, 2}) {
    WorkerProfile profile = harness.Profile(number);
    profile.model.latents = {{1}, 4, PartDType::kF32};
    profile.latent_tokens_max = 3 * 4096;
    harness.scheduler.AttachWorker(profile);
  }
  const auto never = harness.Submit(harness.Prefill(3 * 4096 + 1));
  EXPECT_EQ(harness.submitted.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(harness.submitted.message().find("--latent-budget"), absl::string_view::npos);
  PrefillWork resumed = harness.Prefill(1);  // whose tokens before the start nobody has
  resumed.tokens_begin = resumed.start.boundary = 3 * 4096;
  resumed.start.parts.resize(1);
  harness.Submit(resumed);
  EXPECT_EQ(harness.submitted.code(), absl::StatusCode::kResourceExhausted);
  const auto first = harness.Submit(harness.Prefill(4096));
  const auto second = harness.Submit(harness.Prefill(2 * 4096));
  EXPECT_EQ(harness.scheduler.PromptsRunning(), 2u);  // three pages
  const auto third = harness.Submit(harness.Prefill(2 * 4096));
  // What comes later does not take the room that the third waits for.
  const auto fourth = harness.Submit(harness.Prefill(128));
  const auto decoded = std::make_shared<PromptRecord>();
  ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), decoded).ok());
  EXPECT_EQ(harness.scheduler.PromptsRunning(), 2u);
  EXPECT_TRUE(harness.decodes.empty());
  const auto run = [&](const std::shared_ptr<PromptRecord>& prompt) {
    while (!prompt->finished && !harness.ranges.empty()) harness.FinishRange();
    ASSERT_TRUE(prompt->finished);
    EXPECT_TRUE(prompt->status.ok()) << prompt->status;
  };
  run(first);
  EXPECT_EQ(harness.scheduler.PromptsRunning() + harness.scheduler.PromptsQueued(),
            second->finished ? 3u : 4u);
  run(second);
  run(third);
  run(fourth);
  ASSERT_EQ(harness.decodes.size(), 1u);
  const auto& [worker, order] = harness.decodes.front();
  harness.scheduler.OnDecodeFinished(worker, order.attempt, "length", {});
  EXPECT_TRUE(decoded->finished);
  EXPECT_EQ(harness.scheduler.PromptsRunning(), 0u);
}

// A decoding goes to the worker that has room for it.
TEST(SchedulerLatents, DecodingsGoWhereThereIsRoom) {
  SchedulerHarness harness;
  for (WorkerNumber number : {1, 2}) {
    WorkerProfile profile = harness.Profile(number);
    profile.model.latents = {{1}, 4, PartDType::kF32};
    profile.latent_tokens_max = number * 4096;
    harness.scheduler.AttachWorker(profile);
  }
  std::vector<std::shared_ptr<PromptRecord>> records;
  for (int i = 0; i < 4; ++i) {
    records.push_back(std::make_shared<PromptRecord>());
    ASSERT_TRUE(harness.scheduler.SubmitDecode(harness.Decode(), records.back()).ok());
  }
  ASSERT_EQ(harness.decodes.size(), 3u);
  EXPECT_EQ(harness.decodes[0].first, 1u);
  EXPECT_EQ(harness.decodes[1].first, 2u);
  EXPECT_EQ(harness.decodes[2].first, 2u);
  harness.scheduler.OnDecodeFinished(1, harness.decodes[0].second.attempt, "length", {});
  ASSERT_EQ(harness.decodes.size(), 4u);
  EXPECT_EQ(harness.decodes[3].first, 1u);
}

}  // namespace
}  // namespace deltafill::coordinator::test
