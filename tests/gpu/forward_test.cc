// The CUDA forward pass against the float64 recurrence.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "tests/gpu/forward_case.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;
using kernels::WriteRule;
using kernels::cuda::ForwardTuning;

constexpr double kMaxOutputError = 1e-2, kMaxStateError = 5e-3;

struct Path {
  const char* name;
  ForwardTuning tuning;
};

const Path kPaths[] = {
    {"portable", {.force_portable = true}},
    {"portable_waves", {.force_portable = true, .wave_slots = 7}},
    {"portable_slices", {.force_portable = true, .slice = 32}},
    {"ring", {}},
    {"ring_streams", {.streams = 3}},
};

class ForwardTest : public testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  }

  void Check(const ForwardCase& c, const std::string& what) {
    ForwardResult result;
    const kernels::Status status = RunForward(c, GetParam().tuning, &result);
    ASSERT_TRUE(status.ok()) << status.message();
    const ForwardErrors errors = CompareWithReference(c, result);
    std::printf("  %-40s o %.2e state %.2e\n", what.c_str(), errors.o, errors.state);
    EXPECT_LE(errors.o, kMaxOutputError) << what;
    EXPECT_LE(errors.state, kMaxStateError) << what;
    EXPECT_TRUE(AllFinite(result.o)) << what;
    EXPECT_TRUE(result.outside_untouched) << what;
  }
};

DeltaRuleShape Shape(int heads, int value_heads, int key_dim, int value_dim, GateKind gate) {
  DeltaRuleShape shape;
  shape.heads = heads;
  shape.value_heads = value_heads;
  shape.key_dim = key_dim;
  shape.value_dim = value_dim;
  shape.gate = gate;
  return shape;
}

ForwardCase Random1(const DeltaRuleShape& shape, std::vector<int64_t> lengths, double decay,
                    uint64_t seed) {
  Random random(seed);
  ForwardCase c;
  c.shape = shape;
  int64_t rows = 0;
  for (int64_t length : lengths) rows += length;
  c.lengths = std::move(lengths);
  c.rows = RandomRows(shape, rows, decay, &random);
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    if (i % 3 == 2) {
      c.initial.emplace_back();
    } else {
      c.initial.push_back(
          random.NormalVector(int64_t{shape.value_heads} * shape.value_dim * shape.key_dim, 0.3));
    }
  }
  return c;
}

TEST_P(ForwardTest, GatesAndDecays) {
  for (GateKind gate : {GateKind::kChannelLowerBound, GateKind::kChannelSoftplus}) {
    for (double decay : {-1e-4, -0.005, -0.5, -2.5, -50.0}) {
      const DeltaRuleShape shape = Shape(2, 2, 128, 128, gate);
      Check(Random1(shape, {512}, decay, 11),
            "gate " + std::to_string(static_cast<int>(gate)) + " decay " + std::to_string(decay));
    }
  }
}

TEST_P(ForwardTest, LengthsAroundBlockEdges) {
  const DeltaRuleShape shape = Shape(2, 2, 128, 128, GateKind::kChannelLowerBound);
  for (int64_t length : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200}) {
    Check(Random1(shape, {length}, -0.1, 20 + length), "length " + std::to_string(length));
  }
}

TEST_P(ForwardTest, PackedSequences) {
  const DeltaRuleShape shape = Shape(3, 3, 128, 128, GateKind::kChannelSoftplus);
  Check(Random1(shape, {0, 1, 64, 0, 130, 1, 63, 257, 65, 0}, -0.1, 31), "packed");
}

TEST_P(ForwardTest, GroupedValueHeads) {
  Check(Random1(Shape(2, 6, 128, 128, GateKind::kChannelLowerBound), {150, 70}, -0.1, 41), "HV 6");
}

TEST_P(ForwardTest, RowLayouts) {
  ForwardCase c = Random1(Shape(2, 2, 128, 128, GateKind::kChannelLowerBound), {130, 65}, -0.1, 51);
  c.layout = RowLayout::kFused;
  Check(c, "fused rows");
  c.layout = RowLayout::kUnaligned;
  Check(c, "unaligned rows");
}

TEST_P(ForwardTest, WholeFamily) {
  struct Member {
    const char* name;
    GateKind gate;
    WriteRule write;
  };
  for (const Member& m :
       {Member{"linear attention", GateKind::kNone, WriteRule::kLinear},
        Member{"DeltaNet", GateKind::kNone, WriteRule::kDelta},
        Member{"Gated DeltaNet", GateKind::kScalarSoftplus, WriteRule::kDelta},
        Member{"scalar preactivated", GateKind::kScalarPreactivated, WriteRule::kDelta},
        Member{"channel preactivated", GateKind::kChannelPreactivated, WriteRule::kDelta},
        Member{"gated linear attention", GateKind::kChannelSoftplus, WriteRule::kLinear}}) {
    DeltaRuleShape shape = Shape(2, 2, 128, 128, m.gate);
    shape.write = m.write;
    Check(Random1(shape, {200, 64}, -0.05, 61), m.name);
  }
  DeltaRuleShape shape = Shape(2, 4, 128, 128, GateKind::kScalarPreactivated);
  shape.beta_is_logit = false;
  shape.query_scale = 0.5f;
  Check(Random1(shape, {200, 64}, -0.05, 62), "beta in [0, 2], scale 0.5");
}

TEST_P(ForwardTest, HeadDims) {
  for (int key_dim : {32, 64, 128}) {
    for (int value_dim : {32, 64, 128}) {
      Check(Random1(Shape(2, 2, key_dim, value_dim, GateKind::kChannelSoftplus), {150, 64, 1}, -0.1,
                    71),
            "K " + std::to_string(key_dim) + " V " + std::to_string(value_dim));
    }
  }
}

// Nothing is corrected, so products that overflow past the decay floor must not matter.
TEST_P(ForwardTest, LinearAttentionPastTheDecayFloor) {
  for (int key_dim : {32, 64, 128}) {
    DeltaRuleShape shape = Shape(2, 2, key_dim, 128, GateKind::kChannelSoftplus);
    shape.write = WriteRule::kLinear;
    Check(Random1(shape, {200, 64}, -50.0, 63), "linear, decay -50, K " + std::to_string(key_dim));
  }
}

// 20 tokens at -50, then slow ones: small decays after large ones must survive.
TEST_P(ForwardTest, SlowAfterExtreme) {
  const DeltaRuleShape shape = Shape(2, 2, 128, 128, GateKind::kChannelSoftplus);
  ForwardCase c = Random1(shape, {256}, -0.01, 81);
  c.rows.a_log.assign(2, 0.0f);
  c.rows.dt_bias.clear();
  const int64_t width = 2 * 128;
  for (int64_t row = 0; row < 256; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      if (row % 64 < 20 || (i % 3 == 0 && row % 16 == 7)) c.rows.f[row * width + i] = 50.0f;
    }
  }
  Check(c, "20 tokens at -50, then slow");
}

// KERNELS.md's regimes in which every channel is reset and the transition is large all the same.
enum class Regime { kBlockSwap, kSparseWrites, kRotatingReset };

ForwardCase Adversarial(Regime regime) {
  const DeltaRuleShape shape = Shape(4, 4, 128, 128, GateKind::kChannelLowerBound);
  const int64_t rows = 2048;
  Random random(91);
  ForwardCase c;
  c.shape = shape;
  c.lengths = {rows};
  c.rows = RandomRows(shape, rows, -1.0, &random);
  c.rows.a_log.assign(4, 0.0f);
  c.rows.dt_bias.clear();
  const double common = regime == Regime::kSparseWrites    ? 3.0
                        : regime == Regime::kRotatingReset ? 1.0
                                                           : 0.0;
  const std::vector<float> direction = random.NormalVector(4 * 128);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t phase = row % 16, order = row / 16 % 2;
    for (int64_t i = 0; i < 4 * 128; ++i) {
      const int64_t channel = i % 128, half = channel / 64;
      bool reset = phase < 8 && (phase / 4 ^ order) == half;
      if (regime == Regime::kRotatingReset) reset = (row + channel / 8) % 16 < 4;
      c.rows.f[row * 512 + i] = RawGate(shape, reset ? -5.0 : -1.0e-3);
      for (auto* x : {&c.rows.k, &c.rows.q}) {
        (*x)[row * 512 + i] =
            RoundToBf16((*x)[row * 512 + i] + static_cast<float>(common) * direction[i]);
      }
    }
    if (regime == Regime::kSparseWrites) {
      for (int64_t head = 0; head < 4; ++head) {
        c.rows.beta[row * 4 + head] = row % 16 == 12 ? 5.0f : -4.0f;
      }
    }
  }
  return c;
}

TEST_P(ForwardTest, AdversarialRegimes) {
  Check(Adversarial(Regime::kBlockSwap), "block-swap");
  Check(Adversarial(Regime::kSparseWrites), "block-swap, sparse writes");
  Check(Adversarial(Regime::kRotatingReset), "rotating reset");
}

INSTANTIATE_TEST_SUITE_P(Paths, ForwardTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace deltafill::test
