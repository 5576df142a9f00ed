// A range that starts from a stored state: read while it runs, and noticed when it is lost.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/testing/eventually.h"
#include "tests/testing/lane_fixture.h"
#include "worker/runtime/prefill_lane.h"

namespace deltafill::worker {
namespace {

using test::FakeModel;
using test::LaneBench;
using test::LastRange;
using test::RandomTokens;

class StartStateTest : public testing::Test {
 protected:
  StartStateTest()
      : model_({.on_task = [this](uint32_t layer) { layer_ = layer; }}),
        store_(NewMemoryStore({})),
        worker_(&model_, &store_, std::make_shared<MailboxRegistry>(), 0) {
    worker_.MakePrefill({1, 4096, size_t{1} << 20});
  }

  // Stores the state at token 64 of tokens_.
  std::vector<PartId> Store() {
    RangeCommand first = LastRange({1, 1}, {tokens_.begin(), tokens_.begin() + 64});
    first.boundaries = {{64, false}};
    worker_.prefill->Run(first);
    EXPECT_TRUE(worker_.sink.WaitFor<BoundaryStored>());
    return test::IdsOf(worker_.sink.Of<BoundaryStored>().at(0).parts);
  }

  // The rest of tokens_ after those parts.
  RangeCommand Rest(uint64_t prompt, std::vector<PartId> parts) {
    RangeCommand rest = LastRange({prompt, 1}, {tokens_.begin() + 64, tokens_.end()});
    rest.first_token = 64;
    rest.source = {StateSource::From::kStored, std::move(parts)};
    return rest;
  }

  std::atomic<uint32_t> layer_ = 0;  // that was begun last
  const std::vector<uint32_t> tokens_ = RandomTokens(2, 200, 97);
  FakeModel model_;
  test::HeldStore store_;
  LaneBench worker_;
};

TEST_F(StartStateTest, LayersRunWhileLaterOnesAreRead) {
  const std::vector<PartId> parts = Store();
  store_.HoldLayer(2);
  layer_ = 0;
  worker_.prefill->Run(Rest(2, parts));
  EXPECT_TRUE(test::Eventually([&] { return layer_ == 2; }));
  EXPECT_EQ(worker_.sink.Of<LastLogits>().size(), 1u);
  store_.LetGo();
  ASSERT_TRUE(worker_.sink.WaitFor<RangeDone>(2));
  EXPECT_EQ(worker_.sink.Of<LastLogits>().at(1).values, model_.Run(tokens_).logits);
  EXPECT_GT(worker_.sink.Of<RangeDone>().at(1).restore_s, 0.0);
}

TEST_F(StartStateTest, ALostStateIsSaid) {
  const std::vector<PartId> parts = Store();
  PartId unknown = parts[0];
  unknown.bytes[3] ^= 1;
  const std::vector<std::vector<PartId>> bad = {
      {parts[0]}, {parts[0], parts[0]}, {unknown, parts[1]}, {}};
  uint64_t prompt = 10;
  for (const std::vector<PartId>& ids : bad) worker_.prefill->Run(Rest(++prompt, ids));
  RangeCommand elsewhere = Rest(++prompt, parts);
  elsewhere.first_token = 128;  // the parts are of boundary 64
  worker_.prefill->Run(elsewhere);
  ASSERT_TRUE(worker_.sink.WaitFor<AttemptFailed>(5));
  for (const AttemptFailed& failed : worker_.sink.Of<AttemptFailed>()) {
    EXPECT_TRUE(failed.stored_state_lost) << failed.status;
    EXPECT_TRUE(absl::IsDataLoss(failed.status)) << failed.status;
  }
}

// It is found when the pass has come to that layer.
TEST_F(StartStateTest, ADamagedLayerIsALostState) {
  const std::vector<PartId> parts = Store();
  store_.DamageLayer(2);
  RangeCommand rest = Rest(2, parts);
  rest.boundaries = {{128, false}};
  worker_.prefill->Run(rest);
  ASSERT_TRUE(worker_.sink.WaitFor<AttemptFailed>());
  const AttemptFailed failed = worker_.sink.Of<AttemptFailed>().front();
  EXPECT_TRUE(failed.stored_state_lost) << failed.status;
  EXPECT_TRUE(test::Eventually([&] { return worker_.prefill->idle(); }));
  EXPECT_EQ(worker_.sink.Of<BoundaryStored>().size(), 1u);
  EXPECT_EQ(worker_.sink.Of<LastLogits>().size(), 1u);
}

}  // namespace
}  // namespace deltafill::worker
