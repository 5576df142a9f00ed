#include "worker/runtime/worker.h"

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "proto/worker.pb.h"
#include "tests/testing/fake_coordinator.h"
#include "tests/testing/fake_device_link.h"
#include "tests/testing/fake_model.h"
#include "tests/testing/lane_fixture.h"
#include "worker/runtime/worker_agent.h"

namespace deltafill::worker {
namespace {

using std::chrono::milliseconds;
using test::FakeCoordinator;
using test::FakeModel;
using test::RandomTokens;

enum class Transport { kInProcess, kNetwork, kDeviceLinks };

// Whole workers over the toy model: through messages in and out, with a coordinator that gives
// ranges in turn, in process or with ports of their own, and there with device links or without.
class WorkerTest : public testing::TestWithParam<Transport> {
 protected:
  WorkerTest() : store_(NewMemoryStore({})) {
    test::FakeModelOptions options;
    model_ = std::make_shared<FakeModel>(options);
  }

  ~WorkerTest() override {
    workers_.clear();
    EXPECT_EQ(cards_->links_alive(), 0);
  }

  static bool OverNetwork() { return GetParam() != Transport::kInProcess; }

  // What a device hands on goes by device link where there is one, and nothing else does.
  void ExpectTransfers(int count) const {
    const bool by_link = GetParam() == Transport::kDeviceLinks && test::TestsUseDevice();
    EXPECT_EQ(cards_->transfers(), by_link ? count : 0);
  }

  void AddWorker(const std::string& name) {
    WorkerSetup setup;
    setup.name = name;
    setup.served = {model_, "toy", {}};
    setup.store = store_.get();
    setup.registry = registry_;
    setup.range_tokens_max = 256;
    if (GetParam() == Transport::kDeviceLinks) setup.device_transport = cards_->NewCard(name);
    if (OverNetwork()) {
      setup.coordinator = ConnectCoordinator("127.0.0.1:" + std::to_string(coordinator_->port()));
      setup.exchange_listen = "127.0.0.1:0";
    } else {
      setup.coordinator = coordinator_->InProcessChannel();
    }
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(setup);
    ASSERT_TRUE(worker.ok()) << worker.status();
    EXPECT_EQ((*worker)->profile().exchange_address.empty(), !OverNetwork());
    workers_.push_back(*std::move(worker));
    const int number = coordinator_->NumberOf(name);
    ASSERT_GE(number, 0);
    numbers_.push_back(static_cast<uint32_t>(number));
  }

  v1::WorkerCommand RangeOf(uint64_t prompt, const std::vector<uint32_t>& tokens, size_t range,
                            size_t range_tokens) {
    const size_t first = range * range_tokens;
    const size_t count = std::min(range_tokens, tokens.size() - first);
    v1::WorkerCommand command;
    v1::RunRange* run = command.mutable_run_range();
    run->mutable_attempt()->set_prompt(prompt);
    run->mutable_attempt()->set_attempt(1);
    run->set_range(static_cast<uint32_t>(range));
    run->set_first_token(first);
    run->set_tokens(tokens.data() + first, count * sizeof(uint32_t));
    if (range == 0) {
      run->mutable_source()->set_zero(true);
    } else {
      run->mutable_source()->mutable_peer()->set_worker(Of(range - 1));
    }
    const bool last = first + count == tokens.size();
    if (!last) {
      run->set_hand_on(true);
      run->mutable_next()->set_worker(Of(range + 1));
      run->mutable_next()->set_exchange_address(
          workers_[(range + 1) % workers_.size()]->profile().exchange_address);
    }
    run->set_last_logits(last);
    const uint64_t boundary = (tokens.size() - 1) / 64 * 64;
    if (boundary > first && boundary <= first + count) {
      run->add_boundaries()->set_boundary(boundary);
    }
    run->set_tenant("tenant");
    return command;
  }

  uint32_t Of(size_t range) const { return numbers_[range % numbers_.size()]; }

  std::shared_ptr<FakeModel> model_;
  std::unique_ptr<StateStore> store_;
  std::shared_ptr<MailboxRegistry> registry_ = std::make_shared<MailboxRegistry>();
  std::unique_ptr<FakeCoordinator> coordinator_ = std::make_unique<FakeCoordinator>();
  std::shared_ptr<test::CardSwitch> cards_ = std::make_shared<test::CardSwitch>();
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<uint32_t> numbers_;
};

TEST_P(WorkerTest, RangesInTurnGiveTheReferenceState) {
  for (const char* name : {"a", "b", "c"}) ASSERT_NO_FATAL_FAILURE(AddWorker(name));
  int handed_on = 0;
  for (uint64_t prompt = 1; prompt <= 3; ++prompt) {
    const std::vector<uint32_t> tokens = RandomTokens(prompt, 900 + 31 * prompt, 97);
    const size_t range_tokens = 64 * prompt;
    const size_t ranges = (tokens.size() + range_tokens - 1) / range_tokens;
    handed_on += static_cast<int>((ranges - 1) * model_->state_layout().entries.size());
    for (size_t range = 0; range < ranges; ++range) {
      ASSERT_TRUE(coordinator_->Send(Of(range), RangeOf(prompt, tokens, range, range_tokens)));
    }
    v1::WorkerEvent event;
    ASSERT_TRUE(
        coordinator_->Take([](uint32_t, const auto& e) { return e.has_last_logits(); }, &event));
    const std::vector<float> logits = model_->Run(tokens).logits;
    ASSERT_EQ(event.last_logits().values().size(), logits.size() * sizeof(float));
    EXPECT_EQ(0, std::memcmp(event.last_logits().values().data(), logits.data(),
                             logits.size() * sizeof(float)));
    ASSERT_TRUE(coordinator_->Take([](uint32_t, const auto& e) { return e.has_boundary_stored(); },
                                   &event));
    std::vector<PartReceipt> receipts(2);
    ASSERT_EQ(event.boundary_stored().parts_size(), 2);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(PartId::FromBytes(event.boundary_stored().parts(i).id(), &receipts[i].id));
      EXPECT_NE(event.boundary_stored().parts(i).lease_id(), 0u);
    }
    const uint64_t boundary = (tokens.size() - 1) / 64 * 64;
    EXPECT_EQ(event.boundary_stored().boundary(), boundary);
    const std::vector<uint32_t> prefix(tokens.begin(), tokens.begin() + boundary);
    EXPECT_EQ(*test::StoredState(*store_, *model_, receipts, boundary), model_->Run(prefix).state);
  }
  ExpectTransfers(handed_on);
}

TEST_P(WorkerTest, DecodesAndExportsAndDrains) {
  ASSERT_NO_FATAL_FAILURE(AddWorker("a"));
  v1::WorkerCommand command;
  v1::RunDecode* decode = command.mutable_run_decode();
  decode->mutable_attempt()->set_prompt(1);
  decode->set_tokens(std::string(400, '\0'));
  decode->mutable_source()->set_zero(true);
  decode->set_max_tokens(40);
  decode->set_save_state(true);
  decode->set_tenant("tenant");
  ASSERT_TRUE(coordinator_->Send(0, command));
  v1::WorkerCommand state_export;
  state_export.mutable_run_export()->mutable_attempt()->set_prompt(2);
  state_export.mutable_run_export()->set_tokens(std::string(400, '\0'));
  state_export.mutable_run_export()->mutable_source()->set_zero(true);
  state_export.mutable_run_export()->set_tenant("tenant");
  ASSERT_TRUE(coordinator_->Send(0, state_export));
  v1::WorkerCommand drain;
  drain.mutable_drain();
  ASSERT_TRUE(coordinator_->Send(0, drain));
  v1::WorkerEvent event;
  ASSERT_TRUE(
      coordinator_->Take([](uint32_t, const auto& e) { return e.has_export_ready(); }, &event));
  EXPECT_EQ(event.export_ready().parts_size(), 3);
  ASSERT_TRUE(
      coordinator_->Take([](uint32_t, const auto& e) { return e.has_decode_finished(); }, &event));
  EXPECT_EQ(event.decode_finished().finish_reason(), "length");
  EXPECT_EQ(event.decode_finished().saved().boundary(), 128u);  // 140 tokens
  EXPECT_EQ(event.decode_finished().saved().parts_size(), 2);
  ASSERT_TRUE(coordinator_->Take([](uint32_t, const auto& e) { return e.has_drained(); }, &event));
  EXPECT_TRUE(workers_[0]->WaitFinished(milliseconds(5000)));
  EXPECT_TRUE(coordinator_->WaitGone(0));
}

TEST_P(WorkerTest, ALostCoordinatorEndsAttemptsAndANewOneFindsACleanWorker) {
  ASSERT_NO_FATAL_FAILURE(AddWorker("a"));
  const std::vector<uint32_t> tokens = RandomTokens(1, 300, 97);
  // Waits for a peer that never comes.
  v1::WorkerCommand waiting = RangeOf(1, tokens, 1, 64);
  ASSERT_TRUE(coordinator_->Send(0, waiting));
  std::this_thread::sleep_for(milliseconds(30));
  coordinator_->Drop(0);
  ASSERT_TRUE(coordinator_->WaitAttached(1));
  numbers_[0] = 1;
  // The same numbers again, as a restarted coordinator would give them.
  for (size_t range = 0; range < 5; ++range) {
    ASSERT_TRUE(coordinator_->Send(1, RangeOf(1, tokens, range, 64)));
  }
  v1::WorkerEvent event;
  ASSERT_TRUE(
      coordinator_->Take([](uint32_t, const auto& e) { return e.has_last_logits(); }, &event));
  EXPECT_EQ(0, std::memcmp(event.last_logits().values().data(), model_->Run(tokens).logits.data(),
                           event.last_logits().values().size()));
}

TEST_P(WorkerTest, StopEndsAWorkerThatWaits) {
  ASSERT_NO_FATAL_FAILURE(AddWorker("a"));
  ASSERT_TRUE(coordinator_->Send(0, RangeOf(1, RandomTokens(1, 300, 97), 1, 64)));
  std::this_thread::sleep_for(milliseconds(30));
  const auto start = std::chrono::steady_clock::now();
  workers_.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_P(WorkerTest, APeerThatDiesIsReported) {
  if (!OverNetwork()) GTEST_SKIP() << "peers of one process do not die alone";
  if (GetParam() == Transport::kDeviceLinks) GTEST_SKIP() << "in exchange_device_link_test";
  for (const char* name : {"a", "b"}) ASSERT_NO_FATAL_FAILURE(AddWorker(name));
  const std::vector<uint32_t> tokens = RandomTokens(1, 300, 97);
  const v1::WorkerCommand first = RangeOf(1, tokens, 0, 64);
  workers_.pop_back();
  ASSERT_TRUE(coordinator_->Send(Of(0), first));
  v1::WorkerEvent event;
  ASSERT_TRUE(
      coordinator_->Take([](uint32_t, const auto& e) { return e.has_attempt_failed(); }, &event));
  EXPECT_TRUE(event.attempt_failed().peer_lost());
  EXPECT_EQ(event.attempt_failed().code(), static_cast<uint32_t>(absl::StatusCode::kUnavailable));
}

TEST_P(WorkerTest, MeasuresCosts) {
  ASSERT_NO_FATAL_FAILURE(AddWorker("a"));
  const CostConstants& costs = workers_[0]->profile().costs;
  EXPECT_GT(costs.layer_token_s, 0);
  EXPECT_GT(costs.exchange_s, 0);
  EXPECT_GE(costs.handover_fraction, 0);
  EXPECT_LE(costs.handover_fraction, 1);
}

std::string NameOf(const testing::TestParamInfo<Transport>& transport) {
  switch (transport.param) {
    case Transport::kInProcess:
      return "InProcess";
    case Transport::kNetwork:
      return "Network";
    case Transport::kDeviceLinks:
      break;
  }
  return "DeviceLinks";
}
INSTANTIATE_TEST_SUITE_P(Transports, WorkerTest,
                         testing::Values(Transport::kInProcess, Transport::kNetwork,
                                         Transport::kDeviceLinks),
                         NameOf);

TEST(WorkerSetupTest, MissingPiecesAreNamed) {
  const auto status = Worker::Start({}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("name"), std::string::npos);
  FakeCoordinator coordinator;
  std::unique_ptr<StateStore> store = NewMemoryStore({});
  WorkerSetup setup;
  setup.name = "a";
  setup.served = {std::make_shared<FakeModel>(), "toy", {}};
  setup.store = store.get();
  setup.coordinator = coordinator.InProcessChannel();
  setup.range_tokens_max = 100;
  EXPECT_NE(Worker::Start(setup).status().message().find("range_tokens_max"), std::string::npos);
  setup.range_tokens_max = 128;
  setup.exchange_listen = "0.0.0.0:0";
  EXPECT_NE(Worker::Start(setup).status().message().find("exchange_advertise_host"),
            std::string::npos);
  // A port that somebody has.
  setup.exchange_listen = "127.0.0.1:" + std::to_string(coordinator.port());
  EXPECT_TRUE(absl::IsUnavailable(Worker::Start(setup).status()));
}

}  // namespace
}  // namespace deltafill::worker
