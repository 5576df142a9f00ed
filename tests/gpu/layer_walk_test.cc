// Whole stacks of layers: cut into ranges at block boundaries, handed from lane to lane and resumed
// from a copied state, the rows and states have the bits of one uninterrupted pass; decoding does
// not depend on the batch.
#include "tests/gpu/layer_walk.h"

#include <algorithm>

#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

class LayerWalkTest : public CudaBackendTest {
 protected:
  static constexpr int64_t kTokens = 1000;

  void SetUp() override {
    CudaBackendTest::SetUp();
    if (backend_ == nullptr) return;
    const WalkShape shape = {.layers = 3,
                             .heads = 4,
                             .hidden = 512,
                             .intermediate = 1408,
                             .vocabulary = 1000,
                             .gate = kernels::GateKind::kChannelSoftplus};
    walk_ = std::make_unique<LayerWalk>(backend_, shape, 5);
    Random random(6);
    for (int64_t i = 0; i < kTokens; ++i) {
      tokens_.push_back(static_cast<uint32_t>(random.Integer(0, shape.vocabulary - 1)));
    }
  }

  BackendBuffer NewState() {
    return BackendBuffer(backend_, static_cast<size_t>(walk_->shape().StateFloats()) * 4);
  }

  struct Outcome {
    std::vector<uint16_t> hidden;
    std::vector<float> state;
  };

  // Ranges of the given lengths, range r on lane r mod `lanes`.
  Outcome Run(const std::vector<int64_t>& lengths, int lanes) {
    std::vector<std::unique_ptr<WalkLane>> workers;
    for (int i = 0; i < lanes; ++i) {
      workers.push_back(std::make_unique<WalkLane>(walk_.get(), kTokens));
    }
    const BackendBuffer states[2] = {NewState(), NewState()};
    Outcome outcome;
    int64_t first = 0;
    for (size_t r = 0; r < lengths.size(); ++r) {
      WalkLane& lane = *workers[r % workers.size()];
      const float* const in = r == 0 ? nullptr : states[(r + 1) % 2].as<float>();
      lane.Prefill(
          std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(lengths[r])),
          in, states[r % 2].as<float>());
      Must(lane.operators().Synchronize());
      std::vector<uint16_t> rows = Read<uint16_t>(lane.hidden());
      rows.resize(static_cast<size_t>(lengths[r] * walk_->shape().hidden));
      outcome.hidden.insert(outcome.hidden.end(), rows.begin(), rows.end());
      first += lengths[r];
    }
    EXPECT_EQ(first, kTokens);
    outcome.state = Read<float>(states[(lengths.size() + 1) % 2]);
    return outcome;
  }

  std::unique_ptr<LayerWalk> walk_;
  std::vector<uint32_t> tokens_;
};

TEST_F(LayerWalkTest, RangesAndLanesGiveTheBitsOfOnePass) {
  const Outcome whole = Run({kTokens}, 1);
  const std::vector<float> hidden = FromBf16Bits(whole.hidden);
  ASSERT_TRUE(AllFinite(hidden));
  ASSERT_TRUE(AllFinite(whole.state));
  EXPECT_GT(*std::max_element(hidden.begin(), hidden.end()), 0.1f);
  const std::vector<std::vector<int64_t>> cuts = {
      {kTokens}, {64, 936}, {512, 488}, {960, 40}, {128, 64, 256, 448, 104},
  };
  for (const int lanes : {1, 2, 4}) {
    for (const auto& lengths : cuts) {
      const Outcome cut = Run(lengths, lanes);
      EXPECT_EQ(cut.hidden, whole.hidden) << lengths.size() << " ranges, " << lanes << " lanes";
      EXPECT_EQ(ByteDifference(cut.state, whole.state), "");
    }
  }
}

// Every range length of a block or more, each with a short rest.
TEST_F(LayerWalkTest, EveryBlockBoundary) {
  const Outcome whole = Run({kTokens}, 1);
  for (int64_t cut = 64; cut < kTokens; cut += 64) {
    const Outcome parts = Run({cut, kTokens - cut}, 2);
    ASSERT_EQ(parts.hidden, whole.hidden) << cut;
    ASSERT_EQ(ByteDifference(parts.state, whole.state), "") << cut;
  }
}

TEST_F(LayerWalkTest, ResumeFromACopiedState) {
  const Outcome whole = Run({kTokens}, 1);
  WalkLane lane(walk_.get(), kTokens);
  const BackendBuffer first = NewState(), last = NewState();
  lane.Prefill(std::span(tokens_).first(704), nullptr, first.as<float>());
  Must(lane.operators().Synchronize());
  void* host = nullptr;
  Must(backend_->AllocateHost(first.bytes(), &host));
  Must(lane_->CopyToHost(host, first.as<void>(), first.bytes()));
  Must(lane_->Synchronize());
  const BackendBuffer restored = NewState();
  Must(lane_->CopyFromHost(restored.as<void>(), host, restored.bytes()));
  Must(lane_->Synchronize());
  backend_->FreeHost(host);
  lane.Prefill(std::span(tokens_).subspan(704), restored.as<float>(), last.as<float>());
  Must(lane.operators().Synchronize());
  EXPECT_EQ(ByteDifference(Read<float>(last), whole.state), "");
}

// A sequence's logits and state alone, and in batches of other sizes and at other places.
TEST_F(LayerWalkTest, DecodeDoesNotDependOnTheBatch) {
  constexpr int64_t kBatch = 70;
  const int64_t vocabulary = walk_->shape().vocabulary;
  const size_t state_floats = static_cast<size_t>(walk_->shape().StateFloats());
  Random random(8);
  const std::vector<float> start = random.NormalVector(static_cast<int64_t>(state_floats), 0.1);
  const auto run = [&](int64_t batch, int64_t place) {
    std::vector<BackendBuffer> states;
    std::vector<float*> pointers;
    std::vector<uint32_t> tokens;
    for (int64_t i = 0; i < batch; ++i) {
      std::vector<float> values = start;
      if (i != place) std::reverse(values.begin(), values.end());
      states.push_back(Upload(values));
      pointers.push_back(states.back().as<float>());
      tokens.push_back(i == place ? 77 : static_cast<uint32_t>(i * 13 % vocabulary));
    }
    WalkLane lane(walk_.get(), kBatch);
    const BackendBuffer logits(backend_, static_cast<size_t>(batch * vocabulary) * 4);
    for (int step = 0; step < 3; ++step) lane.Decode(tokens, pointers);
    lane.Logits(batch, true, logits.as<float>());
    Must(lane.operators().Synchronize());
    std::vector<float> row = Read<float>(logits);
    row = {row.begin() + place * vocabulary, row.begin() + (place + 1) * vocabulary};
    return std::pair(row, Read<float>(states[static_cast<size_t>(place)]));
  };
  const auto [logits, state] = run(1, 0);
  ASSERT_TRUE(AllFinite(logits));
  for (const auto& [batch, place] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {3, 0}, {17, 9}, {64, 63}, {kBatch, 66}}) {
    const auto [other_logits, other_state] = run(batch, place);
    EXPECT_EQ(ByteDifference(other_logits, logits), "") << batch << " at " << place;
    EXPECT_EQ(ByteDifference(other_state, state), "") << batch << " at " << place;
  }
}

// Replays of a recorded step, each with other tokens, give the bits of steps issued call by call.
class LayerWalkReplayTest : public LayerWalkTest, public testing::WithParamInterface<int64_t> {};

TEST_P(LayerWalkReplayTest, ReplaysGiveTheBitsOfTheirCalls) {
  constexpr int64_t kSteps = 6;
  const int64_t batch = GetParam();
  const int64_t vocabulary = walk_->shape().vocabulary;
  const auto tokens_at = [&](int64_t step) {
    std::vector<uint32_t> tokens;
    for (int64_t i = 0; i < batch; ++i) {
      tokens.push_back(static_cast<uint32_t>((i * 31 + step * 7) % vocabulary));
    }
    return tokens;
  };
  std::vector<float> outcomes[2];
  for (const bool replays : {false, true}) {
    std::vector<BackendBuffer> states;
    std::vector<float*> pointers;
    for (int64_t i = 0; i < batch; ++i) {
      states.push_back(NewState());
      Must(lane_->FillZero(states.back().as<void>(), states.back().bytes()));
      pointers.push_back(states.back().as<float>());
    }
    Must(lane_->Synchronize());
    WalkLane lane(walk_.get(), batch);
    const BackendBuffer logits(backend_, static_cast<size_t>(batch * vocabulary) * 4);
    const auto step = [&](int64_t number) {
      lane.Decode(tokens_at(number), pointers);
      lane.Logits(batch, true, logits.as<float>());
    };
    step(0);
    std::unique_ptr<kernels::Recording> recording;
    if (replays) {
      Must(lane.operators().BeginRecording());
      step(0);  // recorded, not run
      EXPECT_EQ(lane.operators().Synchronize().code(), kernels::StatusCode::kUnsupported);
      Must(lane.operators().EndRecording(&recording));
    }
    for (int64_t number = 1; number < kSteps; ++number) {
      if (replays) {
        Must(lane.operators().Replay(*recording, tokens_at(number)));
      } else {
        step(number);
      }
    }
    Must(lane.operators().Synchronize());
    outcomes[replays] = Read<float>(logits);
    for (const BackendBuffer& state : states) {
      const std::vector<float> values = Read<float>(state);
      outcomes[replays].insert(outcomes[replays].end(), values.begin(), values.end());
    }
    if (!replays) continue;
    EXPECT_EQ(lane.operators().Replay(*recording, std::vector<uint32_t>(4)).code(),
              kernels::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(AllFinite(outcomes[0]));
  EXPECT_EQ(ByteDifference(outcomes[1], outcomes[0]), "");
}

INSTANTIATE_TEST_SUITE_P(Batches, LayerWalkReplayTest, testing::Values(1, 5, 20, 64));

}  // namespace
}  // namespace deltafill::test
