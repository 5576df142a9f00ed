// Equal bits: run twice, alone and packed, checkpoint and stopped run, cut and continued, slices.
#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/forward_case.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;
using kernels::cuda::ForwardTuning;

class ForwardBitsTest : public testing::TestWithParam<std::tuple<bool, GateKind>> {
 protected:
  void SetUp() override {
    if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
    shape_.heads = shape_.value_heads = 3;
    shape_.key_dim = shape_.value_dim = 128;
    shape_.gate = std::get<1>(GetParam());
  }

  ForwardTuning Tuning() const { return {.force_portable = std::get<0>(GetParam())}; }

  ForwardResult Run(const ForwardCase& c) { return Run(c, Tuning()); }
  ForwardResult Run(const ForwardCase& c, const ForwardTuning& tuning) {
    ForwardResult result;
    const kernels::Status status = RunForward(c, tuning, &result);
    EXPECT_TRUE(status.ok()) << status.message();
    return result;
  }

  ForwardCase MakeCase(std::vector<int64_t> lengths, double decay = -0.3) {
    Random random(7);
    ForwardCase c;
    c.shape = shape_;
    int64_t rows = 0;
    for (int64_t length : lengths) rows += length;
    c.rows = RandomRows(shape_, rows, decay, &random);
    for (size_t i = 0; i < lengths.size(); ++i) {
      c.initial.push_back(random.NormalVector(3 * 128 * 128, 0.3));
    }
    c.lengths = std::move(lengths);
    return c;
  }

  // Rows [first, first + count) as a case of one sequence.
  ForwardCase Part(const ForwardCase& c, int64_t first, int64_t count, std::vector<float> initial) {
    ForwardCase part;
    part.shape = c.shape;
    part.lengths = {count};
    part.rows = SliceRows(c.shape, c.rows, first, count);
    part.initial = {std::move(initial)};
    return part;
  }

  static std::vector<float> Rows(const std::vector<float>& o, int64_t first, int64_t count) {
    return {o.begin() + first * 384, o.begin() + (first + count) * 384};
  }

  static void ExpectEqual(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(ByteDifference(a, b), "");
  }

  DeltaRuleShape shape_;
};

TEST_P(ForwardBitsTest, RunTwice) {
  const ForwardCase c = MakeCase({1000, 65});
  const ForwardResult a = Run(c), b = Run(c);
  ExpectEqual(a.o, b.o);
  ExpectEqual(a.final_states[0], b.final_states[0]);
  ExpectEqual(a.final_states[1], b.final_states[1]);
}

// The copy engine moves these; `run_device.sh` has racecheck look at them.
TEST_P(ForwardBitsTest, WholeBlocks) {
  const ForwardCase c = MakeCase({128, 64, 192});
  const ForwardResult a = Run(c), b = Run(c);
  ExpectEqual(a.o, b.o);
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    ExpectEqual(a.final_states[i], b.final_states[i]);
  }
  const ForwardResult last = Run(Part(c, 192, 192, c.initial[2]));
  ExpectEqual(last.o, Rows(a.o, 192, 192));
  ExpectEqual(last.final_states[0], a.final_states[2]);
}

TEST_P(ForwardBitsTest, AloneAndPacked) {
  // Chains prepare where they are many, and V and O then travel another way.
  const ForwardCase packed = MakeCase({130, 0, 1, 700, 64, 129, 65, 300, 64});
  const ForwardResult all = Run(packed);
  int64_t first = 0;
  for (size_t i = 0; i < packed.lengths.size(); ++i) {
    const ForwardResult alone = Run(Part(packed, first, packed.lengths[i], packed.initial[i]));
    ExpectEqual(alone.o, Rows(all.o, first, packed.lengths[i]));
    ExpectEqual(alone.final_states[0], all.final_states[i]);
    first += packed.lengths[i];
  }
}

TEST_P(ForwardBitsTest, CheckpointsCutsAndSlices) {
  ForwardCase whole = MakeCase({777});
  whole.checkpoints = {{0, 64}, {0, 128}, {0, 448}, {0, 768}};
  const ForwardResult result = Run(whole);
  for (size_t i = 0; i < whole.checkpoints.size(); ++i) {
    const int64_t cut = whole.checkpoints[i].second;
    const ForwardResult stopped = Run(Part(whole, 0, cut, whole.initial[0]));
    ExpectEqual(stopped.final_states[0], result.checkpoints[i]);
    ExpectEqual(stopped.o, Rows(result.o, 0, cut));
    const ForwardResult rest = Run(Part(whole, cut, 777 - cut, stopped.final_states[0]));
    ExpectEqual(rest.o, Rows(result.o, cut, 777 - cut));
    ExpectEqual(rest.final_states[0], result.final_states[0]);
  }
  for (int slice : {16, 32, 64}) {
    for (int streams : {1, 2, 3}) {
      ForwardTuning tuning = Tuning();
      tuning.slice = slice;
      tuning.streams = streams;
      tuning.wave_slots = 5 * streams;
      const ForwardResult other = Run(whole, tuning);
      ExpectEqual(other.o, result.o);
      ExpectEqual(other.final_states[0], result.final_states[0]);
      for (size_t i = 0; i < whole.checkpoints.size(); ++i) {
        ExpectEqual(other.checkpoints[i], result.checkpoints[i]);
      }
    }
  }
}

// A token's bits do not depend on later tokens of its block.
TEST_P(ForwardBitsTest, LaterTokens) {
  const ForwardCase whole = MakeCase({192}, -9.0);
  const ForwardResult result = Run(whole);
  for (int64_t length : {1, 13, 65, 80, 100, 191}) {
    const ForwardResult shorter = Run(Part(whole, 0, length, whole.initial[0]));
    ExpectEqual(shorter.o, Rows(result.o, 0, length));
  }
}

// One sequence's NaN stays there.
TEST_P(ForwardBitsTest, NanStaysInItsSequence) {
  ForwardCase c = MakeCase({100, 70, 90});
  const ForwardResult clean = Run(c);
  for (int64_t i = 0; i < 384; ++i) {
    c.rows.q[110 * 384 + i] = c.rows.k[110 * 384 + i] = c.rows.v[110 * 384 + i] = NAN;
    c.rows.f[110 * 384 + i] = NAN;
  }
  const ForwardResult result = Run(c);
  ExpectEqual(Rows(result.o, 0, 100), Rows(clean.o, 0, 100));
  ExpectEqual(Rows(result.o, 170, 90), Rows(clean.o, 170, 90));
  ExpectEqual(result.final_states[0], clean.final_states[0]);
  ExpectEqual(result.final_states[2], clean.final_states[2]);
  EXPECT_FALSE(AllFinite(result.final_states[1]));
}

INSTANTIATE_TEST_SUITE_P(
    Paths, ForwardBitsTest,
    testing::Combine(testing::Bool(),
                     testing::Values(GateKind::kChannelLowerBound, GateKind::kChannelSoftplus)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) ? "portable" : "ring") +
             (std::get<1>(info.param) == GateKind::kChannelSoftplus ? "_softplus" : "_bounded");
    });

}  // namespace
}  // namespace deltafill::test
