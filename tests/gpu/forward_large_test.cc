// Offsets past 2^31 elements: a short sequence behind one of a million tokens, H = 32, gives the
// bits it gives alone.
#include <gtest/gtest.h>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/forward_case.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

constexpr int64_t kHeads = 32, kWidth = kHeads * 128, kLong = 1 << 20, kShort = 130;
constexpr int64_t kStateFloats = kHeads * 128 * 128;

// bf16 rows: a random stretch repeated, so that neighbouring blocks differ.
DeviceMemory RepeatedRows(int64_t width, uint64_t seed) {
  Random random(seed);
  const size_t bytes = (kLong + kShort) * width * 2;
  std::vector<uint16_t> stretch(width * 1013);
  for (uint16_t& x : stretch) x = Bf16Bits(static_cast<float>(random.Normal()));
  DeviceMemory memory(bytes);
  size_t done = stretch.size() * 2;
  CheckCuda(cudaMemcpy(memory.as<void>(), stretch.data(), done, cudaMemcpyHostToDevice));
  for (; done < bytes; done *= 2) {
    CheckCuda(cudaMemcpy(memory.as<char>() + done, memory.as<void>(), std::min(done, bytes - done),
                         cudaMemcpyDeviceToDevice));
  }
  return memory;
}

struct Operands {
  DeviceMemory q = RepeatedRows(kWidth, 1), k = RepeatedRows(kWidth, 2),
               v = RepeatedRows(kWidth, 3), f = RepeatedRows(kWidth, 4),
               beta = RepeatedRows(kHeads, 5), a_log{std::vector<float>(kHeads, 0.0f)},
               o{static_cast<size_t>((kLong + kShort) * kWidth * 2)},
               states{static_cast<size_t>(2 * kStateFloats * 4)};

  // Rows from `first` on, as sequences of the given offsets.
  void Run(int64_t first, const std::vector<int64_t>& offsets,
           const kernels::cuda::ForwardTuning& tuning) {
    auto at = [&](const DeviceMemory& memory, int64_t width) {
      return kernels::MutableRows{memory.as<uint16_t>() + first * width, kernels::DType::kBF16,
                                  width};
    };
    kernels::DeltaRuleForwardParams params;
    params.shape.heads = params.shape.value_heads = kHeads;
    params.shape.key_dim = params.shape.value_dim = 128;
    params.shape.gate = kernels::GateKind::kChannelLowerBound;
    params.in = {at(q, kWidth), at(k, kWidth),    at(v, kWidth),
                 at(f, kWidth), at(beta, kHeads), a_log.as<float>()};
    params.offsets = offsets;
    params.o = at(o, kWidth);
    float* finals[2] = {states.as<float>(), states.as<float>() + kStateFloats};
    params.final_states = finals;
    kernels::cuda::ForwardWorkspace workspace;
    const kernels::Status status =
        kernels::cuda::DeltaRuleForward(params, tuning, &workspace, nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    CheckCuda(cudaDeviceSynchronize());
  }

  std::vector<uint16_t> Outputs(int64_t first, int64_t rows) const {
    std::vector<uint16_t> out(rows * kWidth);
    CheckCuda(cudaMemcpy(out.data(), o.as<uint16_t>() + first * kWidth, out.size() * 2,
                         cudaMemcpyDeviceToHost));
    return out;
  }
};

TEST(ForwardLargeTest, OffsetsPastTwoToThe31) {
  if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  size_t free = 0, total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total));
  if (free < (size_t{50} << 30)) GTEST_SKIP() << "needs 50 GiB of device memory";
  Operands operands;
  std::vector<uint16_t> ring_outputs;
  std::vector<float> ring_states;
  // The ring's chains prepare, or do not and move V and O as boxes; the portable path.
  for (const kernels::cuda::ForwardTuning& tuning :
       {kernels::cuda::ForwardTuning{}, {.streams = 16}, {.force_portable = true}}) {
    CheckCuda(cudaMemset(operands.o.as<void>(), 0xFF, (kLong + kShort) * kWidth * 2));
    operands.Run(0, {0, kLong, kLong + kShort}, tuning);
    const std::vector<uint16_t> packed = operands.Outputs(kLong, kShort);
    const std::vector<float> states = operands.states.Read<float>();
    EXPECT_TRUE(AllFinite(states));
    if (tuning.streams == 16) {
      EXPECT_EQ(packed, ring_outputs);
      EXPECT_EQ(ByteDifference(std::span(states), std::span(ring_states)), "");
    }
    ring_outputs = packed;
    ring_states = states;
    for (int64_t row : {int64_t{0}, kLong / 2 + 1, kLong - 1}) {
      for (uint16_t bits : operands.Outputs(row, 1)) ASSERT_NE(bits, 0xFFFF) << row;
    }
    operands.Run(kLong, {0, kShort}, tuning);
    EXPECT_EQ(operands.Outputs(kLong, kShort), packed);
    const std::vector<float> alone = operands.states.Read<float>();
    EXPECT_EQ(
        ByteDifference(std::span(alone).first(kStateFloats), std::span(states).last(kStateFloats)),
        "");
  }
}

}  // namespace
}  // namespace deltafill::test
