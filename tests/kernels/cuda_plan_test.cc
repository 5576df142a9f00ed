// Launch plans and checks of the CUDA backend, without a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/cuda/plan.h"

namespace deltafill::kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr DeviceTraits kHopper = {9, 0, 132, 232448};
constexpr DeviceTraits kAda = {8, 9, 76, 101376};

DeltaRuleShape Shape(int heads, int key_dim, int value_dim) {
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = heads;
  shape.key_dim = key_dim;
  shape.value_dim = value_dim;
  return shape;
}

std::vector<int64_t> Offsets(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets = {0};
  for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

TEST(CudaPlanTest, HopperTakesTheRingAndOthersThePortablePath) {
  const auto offsets = Offsets({1 << 20});
  EXPECT_EQ(PlanForward(Shape(32, 128, 128), offsets, kHopper).path, ForwardPath::kRing);
  EXPECT_EQ(PlanForward(Shape(32, 128, 128), offsets, kAda).path, ForwardPath::kPortable);
  EXPECT_EQ(PlanForward(Shape(32, 64, 128), offsets, kHopper).path, ForwardPath::kPortable);
  EXPECT_EQ(PlanForward(Shape(32, 128, 64), offsets, kHopper).path, ForwardPath::kPortable);
}

TEST(CudaPlanTest, WorkspaceDoesNotGrowWithTokens) {
  for (const DeviceTraits& device : {kHopper, kAda}) {
    const int64_t at_million = PlanForward(Shape(32, 128, 128), Offsets({1 << 20}), device).slots;
    const int64_t at_four_million =
        PlanForward(Shape(32, 128, 128), Offsets({1 << 22}), device).slots;
    EXPECT_EQ(at_million, at_four_million);
    EXPECT_LE(at_million, kWaveSlots);
  }
}

TEST(CudaPlanTest, EveryItemIsInOneStreamWithItsSteps) {
  const std::vector<int64_t> lengths = {0, 1, 64, 65, 1000, 0, 130, 4096};
  const auto offsets = Offsets(lengths);
  for (int heads : {1, 5, 32, 96}) {
    const ForwardPlan plan = PlanForward(Shape(heads, 128, 128), offsets, kHopper);
    std::set<int64_t> seen;
    for (const StreamPlan& stream : plan.streams) {
      int64_t steps = 0;
      ASSERT_EQ(stream.first_step.size(), stream.items.size() + 1);
      for (size_t i = 0; i < stream.items.size(); ++i) {
        EXPECT_EQ(stream.first_step[i], steps);
        EXPECT_TRUE(seen.insert(stream.items[i]).second);
        steps += (lengths[stream.items[i] / heads] + 63) / 64;
      }
      EXPECT_EQ(stream.first_step.back(), steps);
    }
    EXPECT_EQ(seen.size(), lengths.size() * heads);
    // Two chaining CTAs a stream, all CTAs resident at once.
    EXPECT_LE(static_cast<int>(plan.streams.size()) * 2, plan.ctas);
    EXPECT_EQ(plan.ctas, kHopper.multiprocessors);
  }
}

// Each stream's two chaining CTAs must be resident, whatever number of streams is asked for.
TEST(CudaPlanTest, StreamsAskedForAreBounded) {
  const ForwardTuning tuning = {.streams = 100};
  EXPECT_EQ(PlanForward(Shape(96, 128, 128), Offsets({640, 64}), kHopper, tuning).streams.size(),
            66u);
  EXPECT_EQ(PlanForward(Shape(4, 128, 128), Offsets({640, 64}), kHopper, tuning).streams.size(),
            8u);
}

TEST(CudaPlanTest, StreamsAreBalanced) {
  const ForwardPlan plan =
      PlanForward(Shape(96, 128, 128), Offsets(std::vector<int64_t>(8, 1024)), kHopper);
  int64_t least = 1 << 30, most = 0;
  for (const StreamPlan& stream : plan.streams) {
    least = std::min(least, stream.first_step.back());
    most = std::max(most, stream.first_step.back());
  }
  EXPECT_LE(most - least, 16);
}

// As long as the other multiprocessors prepare as fast as the chains walk.
TEST(CudaPlanTest, FewChainsKeepTheirMultiprocessors) {
  for (int heads : {1, 8, 16, 24}) {
    EXPECT_FALSE(PlanForward(Shape(heads, 128, 128), Offsets({8192}), kHopper).chains_prepare);
  }
  for (int heads : {25, 32, 96}) {
    EXPECT_TRUE(PlanForward(Shape(heads, 128, 128), Offsets({8192}), kHopper).chains_prepare);
  }
}

TEST(CudaPlanTest, WavesCoverEveryBlockOnce) {
  const std::vector<int64_t> lengths = {0, 1, 64, 65, 1000, 0, 130, 40000};
  const auto offsets = Offsets(lengths);
  for (int64_t slots : {1, 7, 100, 4096}) {
    for (int heads : {1, 3, 64}) {
      ForwardTuning tuning;
      tuning.force_portable = true;
      tuning.wave_slots = slots;
      const ForwardPlan plan = PlanForward(Shape(heads, 64, 32), offsets, kHopper, tuning);
      std::map<int64_t, int64_t> next_block;
      for (const WavePlan& wave : plan.waves) {
        EXPECT_LE(wave.items * wave.blocks, std::max<int64_t>(slots, wave.items));
        EXPECT_LE(wave.items * wave.blocks, plan.slots);
        for (int64_t item = wave.first_item; item < wave.first_item + wave.items; ++item) {
          EXPECT_EQ(next_block[item], wave.first_block);  // ascending, without gaps
          next_block[item] = wave.first_block + wave.blocks;
        }
      }
      EXPECT_EQ(next_block.size(), lengths.size() * heads);
      for (const auto& [item, block] : next_block) {
        EXPECT_GE(block * 64, lengths[item / heads]);
      }
    }
  }
}

TEST(CudaPlanTest, SmallSharedMemoryTakesOneStage) {
  EXPECT_EQ(PlanForward(Shape(4, 128, 128), Offsets({100}), kAda).stages, 1);
  EXPECT_EQ(PlanForward(Shape(4, 32, 32), Offsets({100}), kAda).stages, 2);
  EXPECT_EQ(PlanForward(Shape(4, 32, 32), Offsets({100}), kAda).slice, 32);
}

TEST(CudaPlanTest, PlanPrints) {
  const std::string ring = PlanForward(Shape(32, 128, 128), Offsets({128}), kHopper).ToString();
  EXPECT_THAT(ring, HasSubstr("ring"));
  EXPECT_THAT(ring, HasSubstr("streams=32"));
  const std::string portable = PlanForward(Shape(2, 64, 64), Offsets({128}), kAda).ToString();
  EXPECT_THAT(portable, HasSubstr("items [0, 2) blocks [0, 2)"));
}

// A valid call; each test breaks one field.
struct Call {
  std::vector<int64_t> offsets = {0, 100, 228};
  uint16_t rows[64] = {};
  float state[4] = {};
  std::vector<StateCheckpoint> checkpoints;
  DeltaRuleForwardParams params;
  Call() {
    params.shape = Shape(2, 128, 128);
    const ConstRows wide = {rows, DType::kBF16, 256};
    params.in = {wide, wide, wide, wide, {rows, DType::kBF16, 2}, state};
    params.offsets = offsets;
    params.o = {rows, DType::kBF16, 256};
  }
  std::string Message() {
    params.checkpoints = checkpoints;
    return CheckForwardParams(params).message();
  }
};

TEST(CudaPlanTest, ChecksNameFieldAndLimit) {
  EXPECT_EQ(Call().Message(), "");
  Call call;
  call.params.shape.key_dim = 96;
  EXPECT_THAT(call.Message(), HasSubstr("shape.key_dim must be 32, 64 or 128"));
  call = Call();
  call.params.shape.value_heads = 3;
  EXPECT_THAT(call.Message(), HasSubstr("shape.value_heads"));
  call = Call();
  call.params.shape.gate = GateKind::kChannelLowerBound;
  call.params.shape.lower_bound = -6.0f;
  EXPECT_THAT(call.Message(), HasSubstr("shape.lower_bound must be in [-5, 0)"));
  call = Call();
  call.params.in.k.row_stride = 255;
  EXPECT_THAT(call.Message(), HasSubstr("in.k.row_stride is 255"));
  call = Call();
  call.params.in.v.dtype = DType::kF32;
  EXPECT_THAT(call.Message(), HasSubstr("in.v.dtype"));
  call = Call();
  call.params.in.a_log = nullptr;
  EXPECT_THAT(call.Message(), HasSubstr("in.a_log is null"));
  call = Call();
  call.checkpoints = {{1, 64, call.state}, {0, 64, call.state}};
  EXPECT_THAT(call.Message(), HasSubstr("checkpoints[1] is not ascending"));
  call = Call();
  call.checkpoints = {{0, 128, call.state}};
  EXPECT_THAT(call.Message(), HasSubstr("checkpoints[0].tokens is 128"));
}

}  // namespace
}  // namespace deltafill::kernels::cuda
