// What workers will take of a device's memory, and refusing what does not fit before loading.
#include "worker/runtime/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/model_fixture.h"
#include "tests/worker/watched_backend.h"
#include "worker/model/init.h"
#include "worker/model/model_sizes.h"
#include "worker/runtime/served_model.h"

namespace deltafill::worker {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;
constexpr DeviceMemory kCard{kernels::DType::kBF16, kernels::DType::kBF16, false};
constexpr WorkerMemory kWorker{.range_tokens_max = 8192,
                               .decode_rows_max = 512,
                               .decode_batch_max = 16,
                               .capture_bytes_max = size_t{256} << 20,
                               .latent_bytes_max = size_t{8} << 30};

MemoryPlan PlanPreset(const char* preset, const WorkerMemory& worker = kWorker, int workers = 1) {
  const auto found = FindModelPreset(preset);
  EXPECT_TRUE(found.ok()) << found.status();
  const auto plan = PlanMemory(found->config, kCard, worker, workers);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : MemoryPlan();
}

uint64_t Bytes(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryItem& item : plan.items) {
    if (item.name == name) return item.bytes;
  }
  return 0;
}

TEST(MemoryPlanTest, ItemsAddUp) {
  const MemoryPlan plan = PlanPreset("dense-1b");
  uint64_t total = 0;
  for (const MemoryItem& item : plan.items) {
    EXPECT_GT(item.bytes, 0u) << item.name;
    total += item.bytes;
  }
  EXPECT_EQ(plan.total_bytes, total);
  EXPECT_EQ(Bytes(plan, "latents"), 0u);
  // 1.39 B parameters in bf16, and no more than a page of 2 MiB lost a weight.
  EXPECT_GT(Bytes(plan, "weights"), uint64_t{2'770'000'000});
  EXPECT_LT(Bytes(plan, "weights"), uint64_t{3'300'000'000});
  // Two streams of 2,048 and 16,896 columns of scratch, bf16; logits of 64 rows.
  EXPECT_EQ(Bytes(plan, "prefill"), uint64_t{8192} * (2 * 2048 + 16896) * 2 + 64 * 32000 * 4);
  // The limit: weights and 8 GiB.
  EXPECT_LT(plan.total_bytes, Bytes(plan, "weights") + 8 * kGibibyte);
}

// An H200 says that it has 139.8 GiB.
TEST(MemoryPlanTest, TheLargestPresetFitsACard) {
  const MemoryPlan plan = PlanPreset("kimi-linear-48b");
  EXPECT_LT(plan.total_bytes, 139 * kGibibyte) << plan.ToString();
  EXPECT_GT(Bytes(plan, "weights"), 91 * kGibibyte);
  RecordProperty("plan", plan.ToString());
}

TEST(MemoryPlanTest, WorkersShareTheWeightsAndNothingElse) {
  const MemoryPlan one = PlanPreset("kimi-linear-48b"),
                   three = PlanPreset("kimi-linear-48b", kWorker, 3);
  for (const MemoryItem& item : one.items) {
    const bool shared = item.name == "weights" || item.name == "start";
    EXPECT_EQ(Bytes(three, item.name), (shared ? 1 : 3) * item.bytes) << item.name;
  }
  EXPECT_EQ(Bytes(one, "latents"), kWorker.latent_bytes_max);
}

// 7 layers of 512 + 64 bf16 values a token: what the ranges of 8 workers have written, for the
// range at hand and the two given ahead.
TEST(MemoryPlanTest, HybridsHaveRoomForLatentsOnTheirWay) {
  const uint64_t message = uint64_t{8} * 8192 * 576 * 2;
  EXPECT_GE(Bytes(PlanPreset("kimi-linear-48b"), "exchange"), 3 * 7 * message);
  EXPECT_LT(Bytes(PlanPreset("dense-1b"), "exchange"), 3 * 7 * message);
}

TEST(MemoryPlanTest, AllButCodeIsReserved) {
  const MemoryPlan plan = PlanPreset("kimi-linear-48b");
  EXPECT_EQ(plan.reserved_bytes, plan.total_bytes - (uint64_t{128} << 20));
}

TEST(MemoryPlanTest, OptionsThatTakeMemoryShow) {
  const MemoryPlan plan = PlanPreset("dense-1b");
  WorkerMemory worker = kWorker;
  worker.range_tokens_max *= 2;
  EXPECT_GT(Bytes(PlanPreset("dense-1b", worker), "prefill"), Bytes(plan, "prefill") * 19 / 10);
  worker = kWorker;
  worker.capture_bytes_max *= 4;
  EXPECT_GT(Bytes(PlanPreset("dense-1b", worker), "states"), Bytes(plan, "states") * 2);
  worker = kWorker;
  worker.decode_batch_max *= 4;
  EXPECT_GT(Bytes(PlanPreset("dense-1b", worker), "decoding states"),
            Bytes(plan, "decoding states") * 3);
}

TEST(MemoryPlanTest, WhatDoesNotFitIsRefusedWithItsSizes) {
  const MemoryPlan plan = PlanPreset("kimi-linear-48b");
  EXPECT_TRUE(CheckMemory(plan, {plan.total_bytes, plan.total_bytes}).ok());
  const absl::Status status = CheckMemory(plan, {plan.total_bytes - 1, 139 * kGibibyte});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"139.00 GiB", "weights ", "prefill ", "latents 8.00 GiB", "operators ",
                           "--range-tokens-max", "--latent-budget"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(MemoryPlanTest, ACardsRangesAreAsLongAsThereIsRoomFor) {
  const ModelConfig config = FindModelPreset("kimi-linear-48b")->config;
  const auto choose = [&](const DeviceMemory& device, uint64_t free_bytes) {
    return *ChooseRangeTokens(config, device, kWorker, 1, free_bytes);
  };
  const auto total = [](int64_t range_tokens) {
    WorkerMemory worker = kWorker;
    worker.range_tokens_max = range_tokens;
    return PlanPreset("kimi-linear-48b", worker).total_bytes;
  };
  EXPECT_EQ(choose(kCard, total(16384)), 16384);
  EXPECT_EQ(choose(kCard, total(16384) - 1), 8192);
  EXPECT_EQ(choose(kCard, total(8192) - 1), 4096);
  EXPECT_EQ(choose(kCard, 0), 4096);  // and CheckMemory refuses it
  EXPECT_EQ(choose({kernels::DType::kF32, kernels::DType::kF32, true}, UINT64_MAX), 4096);
}

TEST(MemoryPlanTest, RangesAreWholeBlocks) {
  const ModelConfig config = FindModelPreset("tiny")->config;
  for (int64_t tokens : {-64, 0, 63, 100}) {
    WorkerMemory worker = kWorker;
    worker.range_tokens_max = tokens;
    const absl::Status status = PlanMemory(config, kCard, worker, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tokens;
    EXPECT_THAT(std::string(status.message()), HasSubstr("range_tokens_max")) << tokens;
  }
}

TEST(ServedModelTest, NothingIsLoadedThatDoesNotFit) {
  test::TemporaryDirectory directory;
  ASSERT_TRUE(InitModel("tiny", 1, directory.path() + "/tiny").ok());
  const auto backend = std::make_shared<test::WatchedBackend>();
  std::vector<std::string> lines;
  const auto log = [&](const std::string& line) { lines.push_back(line); };
  backend->memory = {uint64_t{1} << 20, uint64_t{2} << 20};
  const auto refused =
      LoadServedModel({.directory = directory.path() + "/tiny"}, backend, {kWorker, 1}, log);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_EQ(backend->host_weights, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("memory: weights "));
  backend->memory = {8 * kGibibyte, 8 * kGibibyte};
  const auto served =
      LoadServedModel({.directory = directory.path() + "/tiny/"}, backend, {kWorker, 1}, log);
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_GT(backend->host_weights, 0);
  EXPECT_EQ(served->name, "tiny");
  EXPECT_EQ(served->range_tokens_max, kWorker.range_tokens_max);
  const auto random = LoadServedModel({.directory = directory.path() + "/tiny", .random_seed = 5},
                                      backend, {kWorker, 1}, nullptr);
  ASSERT_TRUE(random.ok()) << random.status();
  EXPECT_EQ(random->name, "tiny-random-5");
  EXPECT_NE(random->model->fingerprint(), served->model->fingerprint());
}

}  // namespace
}  // namespace deltafill::worker
