#include "worker/runtime/worker_agent.h"

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "proto/worker.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_coordinator.h"
#include "worker/runtime/wire.h"

namespace deltafill::worker {
namespace {

using std::chrono::milliseconds;
using test::Eventually;
using test::FakeCoordinator;

// Records commands; idle when a test says so.
class RecordingHandler : public CommandHandler {
 public:
  void OnWelcome(uint32_t worker) override { number.store(static_cast<int>(worker)); }
  void OnCommand(WorkerCommand command) override {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  void OnBadCommand(const AttemptKey& attempt, const absl::Status& status) override {
    std::lock_guard lock(mutex_);
    bad_.emplace_back(attempt, status);
  }
  void OnDetached() override { detached.fetch_add(1); }
  WorkerHeartbeat Heartbeat() override { return {4711, 0.25, false}; }
  bool Idle() override { return idle.load(); }

  std::vector<WorkerCommand> commands() {
    std::lock_guard lock(mutex_);
    return commands_;
  }
  std::vector<std::pair<AttemptKey, absl::Status>> bad() {
    std::lock_guard lock(mutex_);
    return bad_;
  }

  std::atomic<int> number{-1};
  std::atomic<int> detached{0};
  std::atomic<bool> idle{false};

 private:
  std::mutex mutex_;
  std::vector<WorkerCommand> commands_;
  std::vector<std::pair<AttemptKey, absl::Status>> bad_;
};

WorkerProfile Profile(const std::string& name) {
  WorkerProfile profile;
  profile.name = name;
  profile.model_name = "toy";
  profile.exchange_address = "10.0.0.1:5";
  profile.vocabulary = 97;
  profile.eos_ids = {2, 3};
  profile.costs.layer_token_s = 1e-6;
  PartHeader shape;
  shape.layers = {0, 2};
  shape.shape = {4, 8, 16, 1};
  profile.state_parts = {shape};
  return profile;
}

WorkerAgentOptions Quick() {
  WorkerAgentOptions options;
  options.reconnect_first = milliseconds(20);
  options.reconnect_max = milliseconds(100);
  return options;
}

bool IsHeartbeat(uint32_t, const v1::WorkerEvent& event) { return event.has_heartbeat(); }

TEST(WorkerAgentTest, SaysHelloBeatsAndCarriesBothWays) {
  FakeCoordinator coordinator;
  RecordingHandler handler;
  WorkerAgent agent(coordinator.InProcessChannel(), Quick());
  agent.Start(Profile("one"), &handler);
  ASSERT_TRUE(coordinator.WaitAttached(0));
  v1::WorkerEvent event;
  ASSERT_TRUE(coordinator.Take([](uint32_t, const auto& e) { return e.has_hello(); }, &event));
  EXPECT_EQ(event.hello().protocol(), 2u);
  EXPECT_EQ(event.hello().name(), "one");
  EXPECT_EQ(event.hello().exchange_address(), "10.0.0.1:5");
  EXPECT_EQ(event.hello().model().fingerprint().size(), 32u);
  EXPECT_EQ(event.hello().model().eos_ids_size(), 2);
  ASSERT_EQ(event.hello().model().state_parts_size(), 1);
  EXPECT_EQ(event.hello().model().state_parts(0).shape(2), 16u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(coordinator.Take(IsHeartbeat, &event));
    EXPECT_EQ(event.heartbeat().save_queue_bytes(), 4711u);
    EXPECT_FALSE(event.heartbeat().draining());
  }
  EXPECT_EQ(handler.number.load(), 0);

  // Events keep their order; tokens that wait for a message to be written share the next one.
  for (uint32_t id = 0; id < 500; ++id) {
    if (id == 300) agent.Emit(DecodeReady{{4, 1}});
    agent.Emit(DecodeToken{{3, 1}, id});
  }
  const auto is_decoding = [](uint32_t, const auto& e) {
    return e.has_decode_tokens() || e.has_decode_ready();
  };
  for (uint32_t id = 0; id < 500;) {
    ASSERT_TRUE(coordinator.Take(is_decoding, &event));
    if (event.has_decode_ready()) {
      EXPECT_EQ(id, 300u);
    }
    for (const v1::DecodeToken& token : event.decode_tokens().tokens()) {
      ASSERT_EQ(token.id(), id++);
      ASSERT_EQ(token.attempt().prompt(), 3u);
    }
  }

  v1::WorkerCommand command;
  v1::RunRange* range = command.mutable_run_range();
  range->mutable_attempt()->set_prompt(9);
  range->mutable_attempt()->set_attempt(2);
  range->set_tokens(std::string("\x01\0\0\0\x02\x01\0\0", 8));
  range->mutable_source()->mutable_peer()->set_worker(4);
  range->mutable_next()->set_worker(6);
  range->mutable_next()->set_exchange_address("host:1");
  range->set_hand_on(true);
  range->add_boundaries()->set_boundary(128);
  ASSERT_TRUE(coordinator.Send(0, command));
  range->set_tokens("abc");
  ASSERT_TRUE(coordinator.Send(0, command));
  ASSERT_TRUE(Eventually([&] { return !handler.bad().empty(); }));
  ASSERT_EQ(handler.commands().size(), 1u);
  const RangeCommand received = std::get<RangeCommand>(handler.commands()[0]);
  EXPECT_EQ(received.attempt, (AttemptKey{9, 2}));
  EXPECT_EQ(received.tokens, (std::vector<uint32_t>{1, 258}));
  EXPECT_EQ(received.source.from, StateSource::From::kPeer);
  EXPECT_EQ(received.next.address, "host:1");
  EXPECT_EQ(received.boundaries.front().boundary, 128u);
  EXPECT_EQ(handler.bad()[0].first, (AttemptKey{9, 2}));
  EXPECT_NE(handler.bad()[0].second.message().find("tokens"), std::string::npos);
  agent.Stop();
  EXPECT_TRUE(coordinator.WaitGone(0));
  EXPECT_EQ(handler.detached.load(), 1);
}

TEST(WorkerAgentTest, ComesBackWhenDroppedAndWhenTheCoordinatorRestarts) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const int port = coordinator->port();
  RecordingHandler handler;
  WorkerAgent agent(ConnectCoordinator("127.0.0.1:" + std::to_string(port)), Quick());
  agent.Start(Profile("one"), &handler);
  ASSERT_TRUE(coordinator->WaitAttached(0));
  coordinator->Drop(0);
  ASSERT_TRUE(coordinator->WaitAttached(1));
  EXPECT_EQ(handler.detached.load(), 1);
  coordinator.reset();
  ASSERT_TRUE(Eventually([&] { return handler.detached.load() == 2; }));
  EXPECT_FALSE(agent.attached());
  agent.Emit(DecodeToken{{1, 1}, 1});  // dropped: nobody is there
  std::this_thread::sleep_for(milliseconds(300));
  coordinator = std::make_unique<FakeCoordinator>(port);
  ASSERT_TRUE(coordinator->WaitAttached(0));
  ASSERT_TRUE(Eventually([&] { return agent.attached(); }));
  agent.Emit(DecodeToken{{1, 1}, 2});
  v1::WorkerEvent event;
  ASSERT_TRUE(
      coordinator->Take([](uint32_t, const auto& e) { return e.has_decode_tokens(); }, &event));
  ASSERT_EQ(event.decode_tokens().tokens_size(), 1);
  EXPECT_EQ(event.decode_tokens().tokens(0).id(), 2u);
  EXPECT_FALSE(agent.WaitFinished(milliseconds(0)));
}

TEST(WorkerAgentTest, DrainsInOrder) {
  FakeCoordinator coordinator(0, 5000);
  RecordingHandler handler;
  WorkerAgent agent(coordinator.InProcessChannel(), Quick());
  agent.Start(Profile("one"), &handler);
  ASSERT_TRUE(Eventually([&] { return agent.attached(); }));
  EXPECT_FALSE(agent.Drain(milliseconds(50)));  // nobody has ordered it yet
  v1::WorkerEvent event;
  ASSERT_TRUE(coordinator.Take(
      [](uint32_t, const auto& e) { return e.has_heartbeat() && e.heartbeat().draining(); },
      &event));
  v1::WorkerCommand command;
  command.mutable_run_decode()->set_tokens(std::string(4, '\0'));
  command.mutable_run_decode()->mutable_source()->set_zero(true);
  ASSERT_TRUE(coordinator.Send(0, command));  // promised before
  command.mutable_drain();
  ASSERT_TRUE(coordinator.Send(0, command));
  ASSERT_TRUE(Eventually([&] { return !handler.commands().empty(); }));
  EXPECT_FALSE(agent.Drain(milliseconds(50)));  // not idle
  agent.Emit(DecodeToken{{1, 1}, 8});
  handler.idle.store(true);
  EXPECT_TRUE(agent.Drain(milliseconds(5000)));
  ASSERT_TRUE(coordinator.WaitGone(0));
  bool token_seen = false;
  ASSERT_TRUE(coordinator.Take(
      [&](uint32_t, const auto& e) {
        token_seen |= e.has_decode_tokens();
        return e.has_drained();
      },
      &event));
  EXPECT_TRUE(token_seen);
  EXPECT_TRUE(agent.WaitFinished(milliseconds(5000)));
  EXPECT_TRUE(agent.status().ok());
}

TEST(WorkerAgentTest, DrainsAtOnceWithoutACoordinator) {
  RecordingHandler handler;
  WorkerAgent agent(ConnectCoordinator("127.0.0.1:1"), Quick());
  agent.Start(Profile("one"), &handler);
  EXPECT_TRUE(agent.Drain(milliseconds(5000)));
}

TEST(WorkerAgentTest, ARefusalForGoodEndsIt) {
  FakeCoordinator coordinator;
  coordinator.Refuse();
  RecordingHandler handler;
  WorkerAgent agent(coordinator.InProcessChannel(), Quick());
  agent.Start(Profile("one"), &handler);
  EXPECT_TRUE(agent.WaitFinished(milliseconds(5000)));
  EXPECT_EQ(agent.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(agent.status().message().find("protocol"), std::string::npos);
}

TEST(WorkerAgentTest, AFailedWorkerLeavesForGoodAndSaysWhy) {
  FakeCoordinator coordinator;
  RecordingHandler handler;
  WorkerAgent agent(coordinator.InProcessChannel(), Quick());
  agent.Start(Profile("one"), &handler);
  ASSERT_TRUE(Eventually([&] { return agent.attached(); }));
  agent.Emit(DecodeToken{{1, 1}, 8});  // before it: is told
  agent.Emit(WorkerFailed{absl::InternalError("its card caught fire")});
  agent.Emit(WorkerFailed{absl::InternalError("a later reason")});
  v1::WorkerEvent event;
  bool token_seen = false;
  ASSERT_TRUE(coordinator.Take(
      [&](uint32_t, const auto& e) {
        token_seen |= e.has_decode_tokens();
        return e.has_failed();
      },
      &event));
  EXPECT_TRUE(token_seen);
  EXPECT_EQ(event.failed().message(), "its card caught fire");
  EXPECT_TRUE(coordinator.WaitGone(0));
  ASSERT_TRUE(agent.WaitFinished(milliseconds(10'000)));
  EXPECT_EQ(agent.status(), absl::InternalError("its card caught fire"));
  EXPECT_EQ(handler.detached.load(), 1);
}

TEST(WorkerAgentTest, AFailedWorkerWaitsForNoCoordinator) {
  RecordingHandler handler;
  WorkerAgent agent(ConnectCoordinator("127.0.0.1:1"), Quick());
  agent.Start(Profile("one"), &handler);
  agent.Emit(WorkerFailed{absl::InternalError("its card caught fire")});
  ASSERT_TRUE(agent.WaitFinished(milliseconds(10'000)));
  EXPECT_TRUE(absl::IsInternal(agent.status()));
}

TEST(WireTest, BadCommandsNameTheField) {
  const auto expect = [](const v1::WorkerCommand& command, const char* field) {
    const absl::Status status = FromWire(command).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_NE(status.message().find(field), std::string::npos) << status;
  };
  expect(v1::WorkerCommand(), "command");
  v1::WorkerCommand command;
  v1::RunDecode* decode = command.mutable_run_decode();
  decode->set_tokens(std::string(4, '\0'));
  expect(command, "source");
  decode->mutable_source()->mutable_stored()->add_part_ids("short");
  expect(command, "part_ids");
  decode->mutable_source()->set_zero(true);
  EXPECT_TRUE(FromWire(command).ok());
  EXPECT_EQ(std::get<DecodeCommand>(*FromWire(command)).sampling.top_p, 1.0);  // not set
  decode->set_top_p(1.5);
  expect(command, "top_p");
  decode->set_top_p(1.0);
  decode->set_temperature(-1);
  expect(command, "temperature");
}

}  // namespace
}  // namespace deltafill::worker
