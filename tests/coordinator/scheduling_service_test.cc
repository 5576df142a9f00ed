// The whole scheduling side with workers over real gRPC streams. Over a port, not in process: a
// thread sanitizer sees how bytes pass through a socket, but not how they pass through gRPC.
#include "coordinator/workers/scheduling_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/coordinator/attached_worker.h"
#include "tests/coordinator/lease_recorder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/random.h"

namespace deltafill::coordinator::test {
namespace {

using deltafill::test::Eventually;
using deltafill::test::Random;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Thread-safe.
class WaitingObserver final : public PromptObserver {
 public:
  void OnPlanned(const PlanSummary& plan, uint32_t attempt) override {
    const std::lock_guard lock(mutex_);
    plan_ = plan;
    attempt_ = attempt;
  }
  void OnBoundaryStored(const StoredBoundary& stored) override {
    const std::lock_guard lock(mutex_);
    ++boundaries_[stored.boundary];
  }
  void OnLogits(const std::string&) override {
    const std::lock_guard lock(mutex_);
    ++logits_;
  }
  void OnDecodeToken(uint32_t) override {
    const std::lock_guard lock(mutex_);
    ++tokens_;
  }
  void OnFinished(const absl::Status& status, const WorkTimings&, const std::string&) override {
    const std::lock_guard lock(mutex_);
    ++finished_;
    status_ = status;
    changed_.notify_all();
  }

  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, seconds(20), [this] { return finished_ > 0; })) {
      return absl::DeadlineExceededError("the prompt has not finished");
    }
    return status_;
  }
  int finished() const { return Locked(finished_); }
  int logits() const { return Locked(logits_); }
  int tokens() const { return Locked(tokens_); }
  uint32_t attempt() const { return Locked(attempt_); }
  PlanSummary plan() const { return Locked(plan_); }
  std::map<uint64_t, int> boundaries() const { return Locked(boundaries_); }

 private:
  template <typename Value>
  Value Locked(const Value& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PlanSummary plan_;
  uint32_t attempt_ = 0;
  std::map<uint64_t, int> boundaries_;
  int logits_ = 0;
  int tokens_ = 0;
  int finished_ = 0;
  absl::Status status_;
};

SchedulingOptions QuickOptions() {
  SchedulingOptions options;
  options.scheduler.plan.range_tokens = 64;
  options.scheduler.worker_grace_s = 0.3;
  options.scheduler.heartbeat_timeout_s = 5.0;
  options.heartbeat_ms = 50;
  options.tick_ms = 10;
  options.log = [](const std::string&) {};
  return options;
}

class SchedulingServiceTest : public ::testing::Test {
 protected:
  void Start(const SchedulingOptions& options = QuickOptions()) {
    auto started = StartScheduling(options, &store_);
    ASSERT_TRUE(started.ok()) << started.status();
    service_ = *std::move(started);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_->worker_service());
    builder.SetMaxReceiveMessageSize(kWorkerMessageBytesMax);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }

  void TearDown() override {
    if (service_ == nullptr) return;
    service_->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + seconds(5));
    server_->Wait();
  }

  std::unique_ptr<FakeAttachedWorker> Attach(const std::string& name, bool answers = true) {
    auto worker = std::make_unique<FakeAttachedWorker>(channel_, FakeHello(name), answers);
    EXPECT_NE(worker->WaitForWelcome(), 0u);
    return worker;
  }

  static PrefillWork Prefill(uint64_t size, std::vector<uint64_t> boundaries = {}) {
    PrefillWork work;
    work.fingerprint.bytes.fill(7);
    work.numerics = "fake numerics";
    work.tenant = "default";
    work.tokens = std::make_shared<const std::vector<uint32_t>>(size, 2u);
    work.boundaries = std::move(boundaries);
    work.last_logits = true;
    work.schedule = ScheduleChoice::kWavefront;
    return work;
  }

  std::shared_ptr<WaitingObserver> Submit(PrefillWork work) {
    auto observer = std::make_shared<WaitingObserver>();
    const auto number = service_->engine()->SubmitPrefill(std::move(work), observer);
    EXPECT_TRUE(number.ok()) << number.status();
    if (number.ok()) last_ = *number;
    return observer;
  }

  LeaseRecorder store_;
  std::unique_ptr<SchedulingService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  PromptNumber last_ = 0;
};

TEST_F(SchedulingServiceTest, WavefrontOverTwoWorkers) {
  Start();
  const auto a = Attach("a");
  const auto b = Attach("b");
  const auto models = service_->engine()->Models();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "fake");
  ASSERT_EQ(models[0].state_parts.size(), 1u);
  EXPECT_EQ(models[0].state_parts[0].shape, (std::array<uint32_t, 4>{2, 3, 4, 1}));
  const auto observer = Submit(Prefill(6400, {64, 640, 6400}));
  EXPECT_TRUE(observer->Wait().ok()) << observer->Wait();
  EXPECT_EQ(observer->plan().schedule, "wavefront");
  EXPECT_EQ(observer->plan().workers, 2u);
  EXPECT_EQ(observer->logits(), 1);
  EXPECT_EQ(observer->boundaries(), (std::map<uint64_t, int>{{64, 1}, {640, 1}, {6400, 1}}));
  uint64_t tokens = 0;
  for (const auto* worker : {a.get(), b.get()}) {
    for (const v1::WorkerCommand& command : worker->commands()) {
      tokens += command.run_range().tokens().size() / sizeof(uint32_t);
    }
  }
  EXPECT_EQ(tokens, 6400u);
  EXPECT_EQ(service_->engine()->PromptsRunning(), 0u);
}

TEST_F(SchedulingServiceTest, DecodeStreamsTokens) {
  Start();
  const auto a = Attach("a");
  DecodeWork work;
  work.fingerprint.bytes.fill(7);
  work.numerics = "fake numerics";
  work.tokens = {1, 2};
  work.max_tokens = 5;
  const auto observer = std::make_shared<WaitingObserver>();
  ASSERT_TRUE(service_->engine()->SubmitDecode(work, observer).ok());
  EXPECT_TRUE(observer->Wait().ok());
  EXPECT_EQ(observer->tokens(), 5);
}

TEST_F(SchedulingServiceTest, LostWorkerCostsAnAttempt) {
  Start();
  const auto stuck = Attach("stuck", /*answers=*/false);
  const auto observer = Submit(Prefill(1000, {512}));
  EXPECT_TRUE(stuck->WaitFor(v1::WorkerCommand::kRunRange));
  const auto healthy = Attach("healthy");
  stuck->Kill();
  EXPECT_TRUE(observer->Wait().ok()) << observer->Wait();
  EXPECT_EQ(observer->attempt(), 2u);
  EXPECT_EQ(observer->boundaries(), (std::map<uint64_t, int>{{512, 1}}));
  EXPECT_TRUE(Eventually([&] { return service_->engine()->Workers().size() == 1; }));
}

TEST_F(SchedulingServiceTest, AWorkerThatSaysItHasFailedCostsAnAttempt) {
  Start();
  const auto broken = Attach("broken", /*answers=*/false);
  const auto observer = Submit(Prefill(1000, {512}));
  EXPECT_TRUE(broken->WaitFor(v1::WorkerCommand::kRunRange));
  const auto healthy = Attach("healthy");
  EXPECT_EQ(service_->engine()->LastLoss(), "");
  v1::WorkerEvent event;
  event.mutable_failed()->set_message("its device has failed: ECC");
  broken->Write(event);
  EXPECT_TRUE(observer->Wait().ok()) << observer->Wait();
  EXPECT_EQ(observer->attempt(), 2u);
  EXPECT_TRUE(absl::IsInternal(broken->Join()));
  EXPECT_EQ(service_->engine()->Workers().size(), 1u);
  EXPECT_EQ(service_->engine()->LastLoss(), "worker broken was lost: its device has failed: ECC");
}

TEST_F(SchedulingServiceTest, LastWorkerLostIsUnavailable) {
  Start();
  const auto stuck = Attach("stuck", false);
  const auto observer = Submit(Prefill(1000));
  EXPECT_TRUE(stuck->WaitFor(v1::WorkerCommand::kRunRange));
  stuck->Kill();
  EXPECT_TRUE(absl::IsUnavailable(observer->Wait())) << observer->Wait();
  const auto later = std::make_shared<WaitingObserver>();
  EXPECT_TRUE(absl::IsUnavailable(service_->engine()->SubmitPrefill(Prefill(10), later).status()));
}

TEST_F(SchedulingServiceTest, SilentWorkerIsGivenUp) {
  SchedulingOptions options = QuickOptions();
  options.scheduler.heartbeat_timeout_s = 0.5;
  Start(options);
  const auto silent = Attach("silent", false);
  const auto observer = Submit(Prefill(1000));
  EXPECT_TRUE(silent->WaitFor(v1::WorkerCommand::kRunRange));
  const auto healthy = Attach("healthy");
  silent->FallSilent();
  EXPECT_TRUE(observer->Wait().ok()) << observer->Wait();
  EXPECT_FALSE(silent->Join().ok());
  EXPECT_EQ(service_->engine()->Workers().size(), 1u);
}

TEST_F(SchedulingServiceTest, DrainedWorkersLeaveCleanly) {
  Start();
  const auto a = Attach("a");
  const auto b = Attach("b");
  const auto c = Attach("c");
  EXPECT_TRUE(absl::IsNotFound(service_->DrainWorker("nobody")));
  const auto observer = Submit(Prefill(64'000));
  ASSERT_TRUE(service_->DrainWorker("a").ok());
  b->Heartbeat(/*draining=*/true);
  EXPECT_TRUE(a->WaitFor(v1::WorkerCommand::kDrain));
  EXPECT_TRUE(b->WaitFor(v1::WorkerCommand::kDrain));
  EXPECT_TRUE(a->Join().ok()) << a->Join();
  EXPECT_TRUE(b->Join().ok()) << b->Join();
  EXPECT_TRUE(observer->Wait().ok()) << observer->Wait();
  EXPECT_EQ(a->commands().back().command_case(), v1::WorkerCommand::kDrain);
  EXPECT_TRUE(Eventually([&] { return service_->engine()->Workers().size() == 1; }));
}

TEST_F(SchedulingServiceTest, RefusedHellos) {
  Start();
  const auto a = Attach("a");
  FakeAttachedWorker twin(channel_, FakeHello("a"), true);
  EXPECT_TRUE(absl::IsInvalidArgument(twin.Join())) << twin.Join();
  EXPECT_THAT(std::string(twin.Join().message()), HasSubstr("hello.name"));
  v1::WorkerHello hello = FakeHello("old");
  hello.set_protocol(0);
  hello.clear_model();
  FakeAttachedWorker old(channel_, hello, true);
  EXPECT_TRUE(absl::IsFailedPrecondition(old.Join())) << old.Join();
  hello.set_protocol(2);
  FakeAttachedWorker empty(channel_, hello, true);
  EXPECT_TRUE(absl::IsInvalidArgument(empty.Join())) << empty.Join();

  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->Attach(&context);
  v1::WorkerEvent event;
  event.mutable_heartbeat();
  stream->Write(event);
  v1::WorkerCommand command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service_->engine()->Workers().size(), 1u);
}

TEST_F(SchedulingServiceTest, MalformedEventEndsTheStreamNotThePrompt) {
  Start();
  const auto liar = Attach("liar", false);
  const auto observer = Submit(Prefill(1000));
  EXPECT_TRUE(liar->WaitFor(v1::WorkerCommand::kRunRange));
  const auto healthy = Attach("healthy");
  v1::WorkerEvent event;
  event.mutable_boundary_stored()->add_parts()->set_id("short");
  liar->Write(event);
  EXPECT_TRUE(absl::IsInvalidArgument(liar->Join())) << liar->Join();
  EXPECT_TRUE(observer->Wait().ok()) << observer->Wait();
}

TEST_F(SchedulingServiceTest, RecoveryLeasesAreReleasedAtTheStore) {
  SchedulingOptions options = QuickOptions();
  options.scheduler.recovery_interval_s = 1e-9;  // one at every range
  Start(options);
  const auto a = Attach("a");
  const auto observer = Submit(Prefill(640));
  EXPECT_TRUE(observer->Wait().ok());
  EXPECT_TRUE(observer->boundaries().empty());
  EXPECT_TRUE(Eventually([&] { return store_.released().size() >= 8; }))
      << store_.released().size();
  for (uint64_t lease : store_.released()) EXPECT_EQ(store_.released().count(lease), 1u);
}

TEST_F(SchedulingServiceTest, StopFinishesEverything) {
  Start();
  const auto stuck = Attach("stuck", false);
  const auto observer = Submit(Prefill(1000));
  service_->Stop();
  service_->Stop();
  EXPECT_TRUE(absl::IsUnavailable(observer->Wait()));
  EXPECT_TRUE(absl::IsUnavailable(stuck->Join())) << stuck->Join();
  const auto later = std::make_shared<WaitingObserver>();
  EXPECT_TRUE(absl::IsUnavailable(service_->engine()->SubmitPrefill(Prefill(10), later).status()));
  EXPECT_TRUE(service_->engine()->Models().empty());
  FakeAttachedWorker late(channel_, FakeHello("late"), true);
  EXPECT_TRUE(absl::IsUnavailable(late.Join())) << late.Join();
}

TEST_F(SchedulingServiceTest, ManyThreadsSubmitAndCancelWhileWorkersComeAndGo) {
  SchedulingOptions options = QuickOptions();
  options.scheduler.worker_grace_s = 5.0;
  options.scheduler.failures_max = 1000;
  Start(options);
  const auto steady = Attach("steady");
  std::mutex mutex;
  std::vector<std::shared_ptr<WaitingObserver>> observers;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (int i = 0; i < 40; ++i) {
        const auto observer = std::make_shared<WaitingObserver>();
        const auto number = service_->engine()->SubmitPrefill(
            Prefill(static_cast<uint64_t>(random.Integer(1, 3000)), {}), observer);
        if (!number.ok()) continue;
        if (random.Integer(0, 3) == 0) service_->engine()->Cancel(*number);
        const std::lock_guard lock(mutex);
        observers.push_back(observer);
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 15; ++i) {
      const auto passing = Attach("passing-" + std::to_string(i));
      std::this_thread::sleep_for(milliseconds(5));
      EXPECT_FALSE(service_->engine()->Workers().empty());
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(observers.empty());
  for (const auto& observer : observers) {
    const absl::Status status = observer->Wait();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    EXPECT_EQ(observer->finished(), 1);
  }
}

TEST(StartScheduling, RefusesImpossibleOptions) {
  LeaseRecorder store;
  SchedulingOptions options = QuickOptions();
  options.scheduler.plan.range_tokens = 100;
  EXPECT_THAT(std::string(StartScheduling(options, &store).status().message()),
              HasSubstr("range_tokens"));
  options = QuickOptions();
  options.heartbeat_ms = 60'000;
  EXPECT_THAT(std::string(StartScheduling(options, &store).status().message()),
              HasSubstr("heartbeat_ms"));
}

}  // namespace
}  // namespace deltafill::coordinator::test
