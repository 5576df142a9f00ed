// A whole service in one process whose workers have a fake device each: what callers see when one
// of them fails for good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/client/service_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/fake_model.h"

namespace deltafill::coordinator {
namespace {

using Toy = deltafill::test::FakeModel;
using deltafill::test::BreakDevice;
using deltafill::test::Eventually;
using ::testing::HasSubstr;

constexpr char kWhy[] = "an illegal memory access was encountered";

class CardFailureTest : public ServiceTest {
 protected:
  void SetUp() override {
    store_ = *EngineStore::Open(NewMemoryEngine(), {});
    SchedulingOptions scheduling;
    scheduling.scheduler.plan.range_tokens = 256;
    scheduling.scheduler.recovery_interval_s = 0.001;
    scheduling.scheduler.worker_grace_s = 0.2;
    scheduling.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_ += line + "\n";
    };
    StartService(scheduling);
  }

  // Each with a card of its own.
  void AddWorkers(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      deltafill::test::FakeModelOptions options;
      options.vocabulary = 256;
      options.on_device = true;
      options.on_task = [this](uint32_t) {
        if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      models_.push_back(std::make_shared<Toy>(options));
      worker::WorkerSetup setup;
      // In process, but for the copies: no card reads the memory of another fake one.
      setup.exchange_listen = "127.0.0.1:0";
      AddWorker(static_cast<int>(i), models_.back(), std::move(setup));
    }
  }

  std::string LogitBytes(const std::vector<uint32_t>& tokens) const {
    return BytesOf(models_[0]->Run(tokens).logits);
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  std::vector<std::shared_ptr<Toy>> models_;
  std::atomic<bool> slow_{false};
  std::mutex mutex_;
  std::string log_;  // guarded by mutex_
};

TEST_F(CardFailureTest, ThePromptInFlightIsPlannedAgainOnTheCardsLeft) {
  AddWorkers(2);
  const std::vector<uint32_t> tokens = Tokens(9000);
  slow_ = true;
  std::thread breaker([&] {
    // A third of the tasks, and something to start again from.
    while (models_[1]->tasks_run() < 18 || store_->GetStats()->parts < 2) std::this_thread::yield();
    BreakDevice(models_[1]->backend(), kWhy);
    slow_ = false;
  });
  const PrefillResult result = Prefill(Whole(tokens));
  breaker.join();
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.logits, LogitBytes(tokens));
  ASSERT_TRUE(workers_[1]->WaitFinished(std::chrono::seconds(10)));
  EXPECT_TRUE(absl::IsInternal(workers_[1]->status()));
  EXPECT_THAT(std::string(workers_[1]->status().message()), HasSubstr(kWhy));
  EXPECT_TRUE(Eventually([&] { return scheduling_->engine()->Workers().size() == 1; }));
  EXPECT_THAT(log(), HasSubstr(kWhy));
  EXPECT_THAT(log(), HasSubstr("1 left"));
  // And every prompt after it.
  for (size_t size : {300, 5000}) {
    const std::vector<uint32_t> more = Tokens(size, 7);
    const PrefillResult next = Prefill(Whole(more));
    ASSERT_TRUE(next.status.ok()) << next.status.error_message();
    EXPECT_EQ(next.logits, LogitBytes(more));
  }
}

TEST_F(CardFailureTest, WithoutACardLeftCallersLearnWhy) {
  AddWorkers(1);
  BreakDevice(models_[0]->backend(), kWhy);
  const PrefillResult result = Prefill(Whole(Tokens(1000)));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(result.status.error_message(), HasSubstr(kWhy));
  ASSERT_TRUE(workers_[0]->WaitFinished(std::chrono::seconds(10)));
  const PrefillResult next = Prefill(Whole(Tokens(1000)));
  EXPECT_EQ(next.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(next.status.error_message(), HasSubstr(kWhy));
  v1::DecodeRequest decode;
  decode.mutable_prompt()->mutable_tokens()->add_ids(1);
  decode.set_max_tokens(1);
  EXPECT_THAT(Decode(decode).status.error_message(), HasSubstr(kWhy));
}

// Nothing runs: the worker's own look at its card tells.
TEST_F(CardFailureTest, AnIdleWorkerLeavesToo) {
  AddWorkers(2);
  BreakDevice(models_[0]->backend(), kWhy);
  ASSERT_TRUE(workers_[0]->WaitFinished(std::chrono::seconds(10)));
  EXPECT_THAT(std::string(workers_[0]->status().message()), HasSubstr(kWhy));
  EXPECT_TRUE(Eventually([&] { return scheduling_->engine()->Workers().size() == 1; }));
}

}  // namespace
}  // namespace deltafill::coordinator
