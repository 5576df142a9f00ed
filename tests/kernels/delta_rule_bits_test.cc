// Row-invariance of the forward pass: equal bits however a sequence is packed, cut or computed.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/cpu/delta_rule.h"
#include "tests/kernels/delta_rule_cases.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;
using kernels::WriteRule;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Bounded gates, unbounded ones with steep rows, the scalar gate, and the linear rule.
std::vector<DeltaRuleShape> BitShapes() {
  DeltaRuleShape lower_bound;
  lower_bound.heads = 1;
  lower_bound.value_heads = 2;
  lower_bound.key_dim = 64;
  lower_bound.value_dim = 32;
  lower_bound.gate = GateKind::kChannelLowerBound;
  DeltaRuleShape softplus = lower_bound;
  softplus.gate = GateKind::kChannelSoftplus;
  softplus.key_dim = 32;
  softplus.value_dim = 64;
  DeltaRuleShape scalar = lower_bound;
  scalar.gate = GateKind::kScalarSoftplus;
  scalar.key_dim = scalar.value_dim = 128;
  DeltaRuleShape linear = softplus;
  linear.write = WriteRule::kLinear;
  return {lower_bound, softplus, scalar, linear};
}

int64_t OutputWidth(const DeltaRuleShape& shape) {
  return static_cast<int64_t>(shape.value_heads) * shape.value_dim;
}

std::vector<float> OutputRows(const DeltaRuleShape& shape, const std::vector<float>& o,
                              int64_t begin, int64_t end) {
  const int64_t width = OutputWidth(shape);
  return std::vector<float>(o.begin() + begin * width, o.begin() + end * width);
}

TEST(DeltaRuleBits, PackedEqualsAloneAtAnyThreadCount) {
  for (const DeltaRuleShape& shape : BitShapes()) {
    SCOPED_TRACE(Describe(shape));
    Random random(11);
    ForwardCall packed;
    packed.shape = shape;
    packed.offsets = {0};
    std::vector<ForwardResult> alone;
    for (const int64_t length : {0, 130, 1, 64, 63, 65, 0, 200, 1, 17}) {
      const Decays decays = kAllDecays[random.Integer(0, 5)];
      const DeltaRuleRows rows = RandomRows(shape, length, decays, random);
      // The gates' parameters are the model's: the first sequence's serve all.
      packed.rows = packed.rows.k.empty() ? rows : Concatenate(packed.rows, rows);
      packed.offsets.push_back(packed.rows.rows);
      packed.initial_states.push_back(random.Integer(0, 1) == 0
                                          ? std::vector<float>{}
                                          : random.NormalVector(StateSize(shape), 0.3));
    }
    const int sequences = static_cast<int>(packed.offsets.size()) - 1;
    for (int s = 0; s < sequences; ++s) {
      ForwardCall call = SingleSequence(
          shape, Slice(shape, packed.rows, packed.offsets[s], packed.offsets[s + 1]));
      call.initial_states = {packed.initial_states[s]};
      alone.push_back(RunForward(call));
      ASSERT_EQ(alone.back().error, "");
    }
    for (const int threads : {1, 2, 3, 64}) {
      packed.threads = threads;
      packed.padding = threads;  // other addresses and alignments as well
      const ForwardResult result = RunForward(packed);
      ASSERT_EQ(result.error, "");
      for (int s = 0; s < sequences; ++s) {
        SCOPED_TRACE("sequence " + std::to_string(s) + " threads " + std::to_string(threads));
        EXPECT_EQ(
            ByteDifference(OutputRows(shape, result.o, packed.offsets[s], packed.offsets[s + 1]),
                           alone[s].o),
            "");
        EXPECT_EQ(ByteDifference(result.final_states[s], alone[s].final_states[0]), "");
      }
    }
  }
}

TEST(DeltaRuleBits, RowsDoNotDependOnLaterRows) {
  for (const DeltaRuleShape& shape : BitShapes()) {
    SCOPED_TRACE(Describe(shape));
    Random random(12);
    const DeltaRuleRows rows = RandomRows(shape, 192, Decays::kLogUniform, random);
    const ForwardResult whole = RunForward(SingleSequence(shape, rows));
    for (const int64_t count : {1, 2, 5, 15, 16, 17, 31, 40, 63, 64, 65, 100, 127, 129, 191}) {
      SCOPED_TRACE("rows " + std::to_string(count));
      const ForwardResult cut = RunForward(SingleSequence(shape, Slice(shape, rows, 0, count)));
      EXPECT_EQ(ByteDifference(cut.o, OutputRows(shape, whole.o, 0, count)), "");
    }
  }
}

// A NaN or infinity in a later row of the same block must not be multiplied by 0 into earlier ones.
TEST(DeltaRuleBits, LaterNaNsDoNotReachEarlierRows) {
  for (const DeltaRuleShape& shape : BitShapes()) {
    SCOPED_TRACE(Describe(shape));
    Random random(13);
    const DeltaRuleRows clean = RandomRows(shape, 128, Decays::kLogUniform, random);
    const ForwardResult expected = RunForward(SingleSequence(shape, clean));
    for (const float poison : {kNaN, std::numeric_limits<float>::infinity()}) {
      for (const int64_t from : {1, 13, 70, 127}) {
        DeltaRuleRows rows = clean;
        for (std::vector<float>* values : {&rows.q, &rows.k, &rows.v, &rows.f, &rows.beta}) {
          const size_t width = values->size() / 128;
          std::fill(values->begin() + static_cast<int64_t>(from * width), values->end(), poison);
        }
        const ForwardResult actual = RunForward(SingleSequence(shape, rows));
        ASSERT_EQ(actual.error, "");
        EXPECT_EQ(ByteDifference(OutputRows(shape, actual.o, 0, from),
                                 OutputRows(shape, expected.o, 0, from)),
                  "");
      }
    }
  }
}

TEST(DeltaRuleBits, CheckpointsEqualRunsThatStopThere) {
  for (const DeltaRuleShape& shape : BitShapes()) {
    SCOPED_TRACE(Describe(shape));
    Random random(14);
    const DeltaRuleRows first = RandomRows(shape, 256, Decays::kTypical, random);
    DeltaRuleRows second = RandomRows(shape, 150, Decays::kFastThenSlow, random);
    ForwardCall call;
    call.shape = shape;
    call.rows = Concatenate(first, second);  // with the first's gate parameters
    call.offsets = {0, 256, 256, 406};
    call.checkpoints = {{0, 64}, {0, 192}, {0, 256}, {2, 64}, {2, 64}, {2, 128}};
    call.threads = 2;
    const ForwardResult result = RunForward(call);
    ASSERT_EQ(result.error, "");
    for (size_t i = 0; i < call.checkpoints.size(); ++i) {
      const auto [sequence, tokens] = call.checkpoints[i];
      const int64_t begin = call.offsets[sequence];
      const ForwardResult stopped =
          RunForward(SingleSequence(shape, Slice(shape, call.rows, begin, begin + tokens)));
      SCOPED_TRACE("checkpoint " + std::to_string(i));
      EXPECT_EQ(ByteDifference(result.checkpoints[i], stopped.final_states[0]), "");
    }
    call.checkpoints.clear();
    const ForwardResult without = RunForward(call);
    EXPECT_EQ(ByteDifference(without.o, result.o), "");
    EXPECT_EQ(ByteDifference(without.final_states[2], result.final_states[2]), "");
  }
}

TEST(DeltaRuleBits, CutAtBlockEndsAndContinuedEqualsTheWhole) {
  for (const DeltaRuleShape& shape : BitShapes()) {
    SCOPED_TRACE(Describe(shape));
    Random random(15);
    const DeltaRuleRows rows = RandomRows(shape, 421, Decays::kTypical, random);
    const ForwardResult whole = RunForward(SingleSequence(shape, rows));
    for (int round = 0; round < 4; ++round) {
      std::vector<float> o;
      std::vector<float> state;
      for (int64_t begin = 0; begin < rows.rows;) {
        const int64_t end = std::min<int64_t>(rows.rows, begin + 64 * random.Integer(1, 4));
        ForwardCall call = SingleSequence(shape, Slice(shape, rows, begin, end));
        call.initial_states = {state};
        const ForwardResult part = RunForward(call);
        o.insert(o.end(), part.o.begin(), part.o.end());
        state = part.final_states[0];
        begin = end;
      }
      EXPECT_EQ(ByteDifference(o, whole.o), "");
      EXPECT_EQ(ByteDifference(state, whole.final_states[0]), "");
    }
  }
}

TEST(DeltaRuleBits, NaNStaysInItsSequence) {
  for (const DeltaRuleShape& shape : BitShapes()) {
    Random random(16);
    const DeltaRuleRows clean = RandomRows(shape, 300, Decays::kTypical, random);
    ForwardCall call = SingleSequence(shape, clean);
    call.offsets = {0, 90, 170, 300};
    const ForwardResult expected = RunForward(call);
    for (int input = 0; input < 5; ++input) {
      SCOPED_TRACE(Describe(shape) + " input " + std::to_string(input));
      call.rows = clean;
      std::vector<float>* inputs[] = {&call.rows.q, &call.rows.k, &call.rows.v, &call.rows.f,
                                      &call.rows.beta};
      if (inputs[input]->empty()) continue;
      const size_t width = inputs[input]->size() / 300;
      (*inputs[input])[100 * width] = kNaN;  // sequence 1, first channel of head 0
      const ForwardResult actual = RunForward(call);
      for (const auto& [begin, end] : {std::pair{0, 100}, {170, 300}}) {
        EXPECT_EQ(ByteDifference(OutputRows(shape, actual.o, begin, end),
                                 OutputRows(shape, expected.o, begin, end)),
                  "");
      }
      EXPECT_EQ(ByteDifference(actual.final_states[0], expected.final_states[0]), "");
      EXPECT_EQ(ByteDifference(actual.final_states[2], expected.final_states[2]), "");
      // It must not be swallowed either.
      EXPECT_FALSE(AllFinite(OutputRows(shape, actual.o, 100, 101)));
      if (input != 0) {
        EXPECT_FALSE(AllFinite(actual.final_states[1]));
      }
    }
  }
}

TEST(DeltaRuleBits, FinalStateMayReplaceTheInitialState) {
  const DeltaRuleShape shape = BitShapes()[0];
  Random random(17);
  const DeltaRuleRows rows = RandomRows(shape, 100, Decays::kTypical, random);
  ForwardCall call = SingleSequence(shape, rows);
  call.initial_states = {random.NormalVector(StateSize(shape))};
  const ForwardResult expected = RunForward(call);

  std::vector<float> state = call.initial_states[0];
  std::vector<float> o(expected.o.size());
  const float* initial[] = {state.data()};
  float* final_state[] = {state.data()};
  const auto rows_of = [](const std::vector<float>& values) {
    return kernels::ConstRows{values.data(), kernels::DType::kF32,
                              static_cast<int64_t>(values.size()) / 100};
  };
  kernels::DeltaRuleForwardParams params;
  params.shape = shape;
  params.in = {rows_of(rows.q),    rows_of(rows.k),   rows_of(rows.v),    rows_of(rows.f),
               rows_of(rows.beta), rows.a_log.data(), rows.dt_bias.data()};
  params.offsets = call.offsets;
  params.initial_states = initial;
  params.final_states = final_state;
  params.o = {o.data(), kernels::DType::kF32, OutputWidth(shape)};
  kernels::cpu::ThreadTeam team(8);  // also splits the value channels
  ASSERT_EQ(kernels::cpu::DeltaRuleForward(params, team).message(), "");
  EXPECT_EQ(ByteDifference(state, expected.final_states[0]), "");
  EXPECT_EQ(ByteDifference(o, expected.o), "");
}

TEST(DeltaRuleBits, DenormalArithmeticOfTheCallerIsLeftAlone) {
  const DeltaRuleShape shape = BitShapes()[0];
  Random random(18);
  ASSERT_EQ(RunForward(SingleSequence(shape, RandomRows(shape, 70, Decays::kFast, random))).error,
            "");
  volatile float small = 1e-38f;
  small = small * 0.01f;
  EXPECT_GT(small, 0.0f);
}

}  // namespace
}  // namespace deltafill::test
