#include "worker/runtime/prefill_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tests/testing/eventually.h"
#include "tests/testing/lane_fixture.h"

namespace deltafill::worker {
namespace {

using std::chrono::milliseconds;
using test::FakeModel;
using test::FakeModelOptions;
using test::LaneBench;
using test::LastRange;
using test::RandomTokens;

class PrefillLaneTest : public testing::Test {
 protected:
  explicit PrefillLaneTest(FakeModelOptions options = {})
      : model_(std::move(options)), store_(NewMemoryStore({})) {}

  LaneBench& AddWorker(const PrefillLaneOptions& options = {1, 4096, size_t{1} << 20}) {
    const uint32_t number = static_cast<uint32_t>(workers_.size());
    workers_.push_back(std::make_unique<LaneBench>(&model_, &store_, registry_, number));
    workers_.back()->MakePrefill(options);
    return *workers_.back();
  }

  void RunWavefront(AttemptKey attempt, const std::vector<uint32_t>& tokens, size_t range_tokens,
                    size_t every) {
    test::RunWavefront(workers_, attempt, tokens, range_tokens, every);
  }

  template <typename Event>
  std::vector<Event> Everything() const {
    std::vector<Event> all;
    for (const auto& worker : workers_) {
      for (Event& event : worker->sink.Of<Event>()) all.push_back(std::move(event));
    }
    return all;
  }

  template <typename Event>
  bool WaitForAll(size_t count) const {
    return test::Eventually([&] { return Everything<Event>().size() >= count; });
  }

  FakeModel model_;
  test::HeldStore store_;
  std::shared_ptr<MailboxRegistry> registry_ = std::make_shared<MailboxRegistry>();
  std::vector<std::unique_ptr<LaneBench>> workers_;
};

TEST_F(PrefillLaneTest, AnyNumberOfWorkersAndRangeLengthGivesTheSameStates) {
  for (size_t i = 0; i < 4; ++i) AddWorker();
  const std::vector<uint32_t> tokens = RandomTokens(1, 1000, 97);
  const FakeModel::Reference whole = model_.Run(tokens);
  uint64_t prompt = 0;
  for (size_t worker_count = 4; worker_count >= 1; --worker_count) {
    workers_.resize(worker_count);
    for (size_t range_tokens : {64u, 192u, 4096u}) {
      SCOPED_TRACE(testing::Message() << worker_count << " workers, ranges of " << range_tokens);
      const size_t stored_before = Everything<BoundaryStored>().size();
      const size_t logits_before = Everything<LastLogits>().size();
      RunWavefront({++prompt, 1}, tokens, range_tokens, 256);
      ASSERT_TRUE(WaitForAll<BoundaryStored>(stored_before + 4));
      // The last boundary may be stored by another worker than the one that makes the logits.
      ASSERT_TRUE(WaitForAll<LastLogits>(logits_before + 1));
      size_t checked = 0;
      for (const BoundaryStored& stored : Everything<BoundaryStored>()) {
        if (stored.attempt.prompt != prompt) continue;
        ASSERT_EQ(stored.parts.size(), 2u);
        auto state = test::StoredState(store_, model_, stored.parts, stored.boundary);
        ASSERT_TRUE(state.ok()) << state.status();
        const std::vector<uint32_t> prefix(tokens.begin(), tokens.begin() + stored.boundary);
        EXPECT_EQ(*state, model_.Run(prefix).state) << stored.boundary;
        ++checked;
      }
      EXPECT_EQ(checked, 4u);  // 256, 512, 768, 960
      size_t logits = 0;
      for (const LastLogits& last : Everything<LastLogits>()) {
        if (last.attempt.prompt != prompt) continue;
        EXPECT_EQ(last.values, whole.logits);
        ++logits;
      }
      EXPECT_EQ(logits, 1u);
    }
  }
  EXPECT_TRUE(Everything<AttemptFailed>().empty());
}

TEST_F(PrefillLaneTest, ResumesFromAStoredState) {
  LaneBench& worker = AddWorker();
  const std::vector<uint32_t> tokens = RandomTokens(2, 300, 97);
  RangeCommand first = LastRange({1, 1}, {tokens.begin(), tokens.begin() + 128});
  first.boundaries = {{64, false}, {128, false}};
  worker.prefill->Run(first);
  ASSERT_TRUE(worker.sink.WaitFor<BoundaryStored>(2));
  const std::vector<BoundaryStored> stored = worker.sink.Of<BoundaryStored>();
  for (size_t i = 0; i < 2; ++i) {
    RangeCommand rest = LastRange({2 + i, 1}, {tokens.begin() + stored[i].boundary, tokens.end()});
    rest.first_token = stored[i].boundary;
    rest.source = {StateSource::From::kStored, test::IdsOf(stored[i].parts)};
    worker.prefill->Run(rest);
  }
  ASSERT_TRUE(worker.sink.WaitFor<LastLogits>(3));
  const std::vector<float> whole = model_.Run(tokens).logits;
  EXPECT_EQ(worker.sink.Of<LastLogits>()[1].values, whole);
  EXPECT_EQ(worker.sink.Of<LastLogits>()[2].values, whole);
}

TEST_F(PrefillLaneTest, BadCommandsNameTheField) {
  LaneBench& worker = AddWorker({1, 128, size_t{1} << 20});
  uint64_t prompt = 0;
  const auto expect = [&](RangeCommand command, const char* field) {
    command.attempt = {++prompt, 1};
    worker.prefill->Run(command);
    ASSERT_TRUE(worker.sink.WaitFor<AttemptFailed>(prompt));
    const AttemptFailed failed = worker.sink.Of<AttemptFailed>().back();
    EXPECT_EQ(failed.attempt.prompt, prompt);
    EXPECT_TRUE(absl::IsInvalidArgument(failed.status)) << failed.status;
    EXPECT_NE(failed.status.message().find(field), std::string::npos) << failed.status;
  };
  expect(LastRange({}, {1, 2, 97}), "tokens: id 97");
  expect(LastRange({}, {}), "tokens: empty");
  expect(LastRange({}, std::vector<uint32_t>(129, 1)), "limit is 128");
  RangeCommand command = LastRange({}, std::vector<uint32_t>(100, 1));
  command.first_token = 63;
  expect(command, "first_token");
  command.first_token = 64;
  command.hand_on = true;
  expect(command, "hands on");
  command.hand_on = false;
  command.boundaries = {{192, false}};
  expect(command, "boundaries: 192");
  command.boundaries = {{64, false}};
  expect(command, "boundaries: 64");
}

TEST_F(PrefillLaneTest, MoreBoundariesThanRoomRunInPasses) {
  // Room for three states; a range with sixteen boundaries, all of them stored.
  LaneBench& worker = AddWorker({1, 1024, 3 * model_.state_layout().bytes});
  const std::vector<uint32_t> tokens = RandomTokens(3, 1000, 97);
  RunWavefront({1, 1}, tokens, 1024, 64);
  ASSERT_TRUE(worker.sink.WaitFor<BoundaryStored>(15));
  for (const BoundaryStored& stored : worker.sink.Of<BoundaryStored>()) {
    const std::vector<uint32_t> prefix(tokens.begin(), tokens.begin() + stored.boundary);
    EXPECT_EQ(*test::StoredState(store_, model_, stored.parts, stored.boundary),
              model_.Run(prefix).state);
  }
  EXPECT_EQ(worker.sink.Of<LastLogits>().front().values, model_.Run(tokens).logits);
}

TEST_F(PrefillLaneTest, SlowSavingSkipsRecoveryBoundariesAndStallsRequestedOnes) {
  LaneBench& worker = AddWorker({1, 64, 2 * model_.state_layout().bytes});
  store_.Hold();
  const std::vector<uint32_t> tokens = RandomTokens(4, 64, 97);
  const auto run = [&](uint64_t prompt, bool recovery) {
    RangeCommand command = LastRange({prompt, 1}, tokens);
    command.boundaries = {{64, recovery}};
    worker.prefill->Run(command);
  };
  size_t extra = 0;
  if (test::TestsUseDevice()) {
    // A state that is being put has given its device memory back.
    run(10, false);
    ASSERT_TRUE(test::Eventually([&] { return store_.held_puts() == 1; }));
    extra = 1;
  }
  run(1, false);
  run(2, true);  // room for this one too
  run(3, true);
  ASSERT_TRUE(worker.sink.WaitFor<RangeDone>(extra + 3));
  ASSERT_TRUE(worker.sink.WaitFor<BoundaryStored>(1));
  EXPECT_EQ(worker.sink.Of<BoundaryStored>().front().attempt.prompt, 3u);
  EXPECT_TRUE(worker.sink.Of<BoundaryStored>().front().skipped);
  EXPECT_EQ(worker.saver.queued_bytes(), (extra + 2) * model_.state_layout().bytes);
  EXPECT_EQ(worker.prefill->TakeStallSeconds(), 0.0);
  run(4, false);
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_EQ(worker.sink.Of<RangeDone>().size(), extra + 3);  // waits for room
  store_.LetGo();
  ASSERT_TRUE(worker.sink.WaitFor<BoundaryStored>(extra + 4));
  EXPECT_GT(worker.prefill->TakeStallSeconds(), 0.03);
  for (const BoundaryStored& stored : worker.sink.Of<BoundaryStored>()) {
    EXPECT_EQ(stored.skipped, stored.attempt.prompt == 3);
  }
}

TEST_F(PrefillLaneTest, AStoreThatRefusesFailsRequestedBoundariesOnly) {
  LaneBench& worker = AddWorker();
  store_.FailPuts(absl::ResourceExhaustedError("disk full"));
  RangeCommand command = LastRange({1, 1}, RandomTokens(4, 64, 97));
  command.boundaries = {{64, true}};
  worker.prefill->Run(command);
  ASSERT_TRUE(worker.sink.WaitFor<BoundaryStored>());
  EXPECT_TRUE(worker.sink.Of<BoundaryStored>().front().skipped);
  command.attempt = {2, 1};
  command.boundaries = {{64, false}};
  worker.prefill->Run(command);
  ASSERT_TRUE(worker.sink.WaitFor<AttemptFailed>());
  EXPECT_TRUE(absl::IsResourceExhausted(worker.sink.Of<AttemptFailed>().front().status));
}

TEST_F(PrefillLaneTest, LogitsComeBeforeTheStateIsStored) {
  LaneBench& worker = AddWorker();
  store_.Hold();
  RangeCommand command = LastRange({1, 1}, RandomTokens(5, 100, 97));
  command.boundaries = {{64, false}};
  worker.prefill->Run(command);
  EXPECT_TRUE(worker.sink.WaitFor<LastLogits>());
  EXPECT_TRUE(worker.sink.WaitFor<RangeDone>());
  EXPECT_TRUE(worker.sink.Of<BoundaryStored>().empty());
  store_.LetGo();
  EXPECT_TRUE(worker.sink.WaitFor<BoundaryStored>());
}

TEST_F(PrefillLaneTest, AbortedRangesThatWaitForAPeerEnd) {
  LaneBench& worker = AddWorker();
  RangeCommand command = LastRange({1, 1}, RandomTokens(5, 100, 97));
  command.range = 1;
  command.first_token = 64;
  command.source.from = StateSource::From::kPeer;
  worker.prefill->Run(command);
  worker.prefill->Run(LastRange({2, 1}, RandomTokens(6, 70, 97)));  // waits behind it
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_TRUE(worker.sink.Of<RangeDone>().empty());
  worker.attempts.Abort({1, 1});
  ASSERT_TRUE(worker.sink.WaitFor<RangeDone>());
  EXPECT_EQ(worker.sink.Of<RangeDone>().front().attempt.prompt, 2u);
  EXPECT_TRUE(worker.sink.Of<AttemptFailed>().empty());
  while (!worker.prefill->idle()) std::this_thread::sleep_for(milliseconds(1));
  // A range of the aborted attempt that comes later is dropped.
  worker.prefill->Run(command);
  EXPECT_TRUE(worker.prefill->idle());
}

TEST_F(PrefillLaneTest, AMissingPeerFailsTheAttemptOnce) {
  LaneBench& worker = AddWorker();
  for (uint32_t range = 0; range < 3; ++range) {
    RangeCommand command = LastRange({1, 1}, RandomTokens(6, 64, 97));
    command.range = range;
    command.first_token = 64 * range;
    command.hand_on = true;
    command.next = {17, ""};
    worker.prefill->Run(command);
  }
  ASSERT_TRUE(worker.sink.WaitFor<AttemptFailed>());
  while (!worker.prefill->idle()) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_EQ(worker.sink.Of<AttemptFailed>().size(), 1u);
  EXPECT_TRUE(worker.sink.Of<AttemptFailed>().front().peer_lost);
  EXPECT_NE(worker.sink.Of<AttemptFailed>().front().status.message().find("worker 17"),
            std::string::npos);
}

class SlowModelTest : public PrefillLaneTest {
 protected:
  SlowModelTest() : PrefillLaneTest(Options()) {}
  static FakeModelOptions Options() {
    FakeModelOptions options;
    options.layers = 40;
    options.layer_delay = std::chrono::milliseconds(10);
    return options;
  }
};

TEST_F(SlowModelTest, AbortStopsWithinOneTaskAndProgressIsRateLimited) {
  LaneBench& worker = AddWorker();
  const int before = model_.tasks_run();  // devices run once at start
  worker.prefill->Run(LastRange({1, 1}, RandomTokens(7, 64, 97)));
  ASSERT_TRUE(worker.sink.WaitFor<RangeDone>());
  const size_t progress = worker.sink.Of<RangeProgress>().size();
  EXPECT_GE(progress, 2u);  // 400 ms and more at one in 100 ms
  EXPECT_LE(progress, 39u);
  worker.prefill->Run(LastRange({2, 1}, RandomTokens(7, 64, 97)));
  while (model_.tasks_run() < before + 45) std::this_thread::sleep_for(milliseconds(1));
  worker.attempts.Abort({2, 1});
  const int tasks = model_.tasks_run();
  while (!worker.prefill->idle()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_LE(model_.tasks_run(), tasks + 1);
  EXPECT_EQ(worker.sink.Of<RangeDone>().size(), 1u);
}

class PoisonTest : public PrefillLaneTest {
 protected:
  PoisonTest() : PrefillLaneTest(Options()) {}
  static FakeModelOptions Options() {
    FakeModelOptions options;
    options.poison_token = 5;
    return options;
  }
};

TEST_F(PoisonTest, ANonFiniteStateIsNotStored) {
  LaneBench& worker = AddWorker();
  std::vector<uint32_t> tokens(128, 1);
  tokens[100] = 5;
  RangeCommand command = LastRange({1, 1}, tokens);
  command.boundaries = {{64, false}, {128, true}};
  worker.prefill->Run(command);
  ASSERT_TRUE(worker.sink.WaitFor<AttemptFailed>());
  const AttemptFailed failed = worker.sink.Of<AttemptFailed>().front();
  EXPECT_TRUE(absl::IsInternal(failed.status));
  EXPECT_NE(failed.status.message().find("layer 1, head 1"), std::string::npos) << failed.status;
  ASSERT_EQ(worker.sink.Of<BoundaryStored>().size(), 1u);
  EXPECT_EQ(worker.sink.Of<BoundaryStored>().front().boundary, 64u);
  EXPECT_EQ(store_.GetStats()->parts, 2u);
}

}  // namespace
}  // namespace deltafill::worker
