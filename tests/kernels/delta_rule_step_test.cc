// The one-token step, applied again and again, against the float64 recurrence and the forward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/cpu/delta_rule.h"
#include "kernels/cpu/thread_team.h"
#include "tests/kernels/delta_rule_cases.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::ConstRows;
using kernels::DeltaRuleShape;
using kernels::DType;
using kernels::GateKind;

constexpr double kTolerance = 2e-6;

// One step of all sequences: `rows` has one row a sequence. Returns o [batch, HV*V].
std::vector<float> Step(const DeltaRuleShape& shape, const DeltaRuleRows& rows,
                        std::vector<std::vector<float>>& states, int threads = 1) {
  const int64_t batch = rows.rows;
  const auto view = [batch](const std::vector<float>& values) {
    return ConstRows{values.data(), DType::kF32, static_cast<int64_t>(values.size()) / batch};
  };
  std::vector<float*> pointers;
  for (std::vector<float>& state : states) pointers.push_back(state.data());
  const int64_t width = static_cast<int64_t>(shape.value_heads) * shape.value_dim;
  constexpr int64_t kGap = 3;
  std::vector<float> o(static_cast<size_t>(batch * (width + kGap)),
                       std::numeric_limits<float>::quiet_NaN());
  kernels::DeltaRuleStepParams params;
  params.shape = shape;
  params.in = {view(rows.q), view(rows.k), view(rows.v), view(rows.f), view(rows.beta)};
  if (!rows.a_log.empty()) params.in.a_log = rows.a_log.data();
  if (!rows.dt_bias.empty()) params.in.dt_bias = rows.dt_bias.data();
  params.batch = batch;
  params.states = pointers.data();
  params.o = {o.data(), DType::kF32, width + kGap};
  kernels::cpu::ThreadTeam team(threads);
  EXPECT_EQ(kernels::cpu::DeltaRuleStep(params, team).message(), "");
  std::vector<float> out;
  for (int64_t row = 0; row < batch; ++row) {
    const auto first = o.begin() + row * (width + kGap);
    out.insert(out.end(), first, first + width);
    EXPECT_FALSE(AllFinite({&*first + width, kGap})) << "wrote between rows";
  }
  return out;
}

TEST(DeltaRuleStep, RepeatedMatchesReferenceAndForward) {
  double worst_o = 0.0;
  double worst_state = 0.0;
  uint64_t seed = 400;
  for (const auto& [key_dim, value_dim] : {std::pair{32, 128}, {64, 32}, {128, 64}}) {
    for (DeltaRuleShape shape : Family(1, 2, key_dim, value_dim)) {
      Random random(++seed);
      shape.normalize_qk = seed % 3 != 0;
      shape.beta_is_logit = seed % 5 != 0;
      SCOPED_TRACE(Describe(shape));
      constexpr int64_t kRows = 90;
      const DeltaRuleRows rows = RandomRows(shape, kRows, kAllDecays[seed % 6], random);
      ForwardCall call = SingleSequence(shape, rows);
      call.initial_states = {random.NormalVector(StateSize(shape), 0.3)};
      std::vector<std::vector<float>> states = call.initial_states;
      std::vector<float> o;
      for (int64_t row = 0; row < kRows; ++row) {
        const std::vector<float> out = Step(shape, Slice(shape, rows, row, row + 1), states);
        o.insert(o.end(), out.begin(), out.end());
      }
      const int64_t state_width = static_cast<int64_t>(shape.value_dim) * shape.key_dim;
      std::vector<double> state(call.initial_states[0].begin(), call.initial_states[0].end());
      const std::vector<double> expected = ReferenceForward(shape, rows, &state);
      const double o_error =
          MaxHeadRelativeError(o, expected, kRows, shape.value_heads, shape.value_dim);
      const double state_error =
          MaxHeadRelativeError(states[0], state, 1, shape.value_heads, state_width);
      EXPECT_LE(o_error, kTolerance);
      EXPECT_LE(state_error, kTolerance);
      worst_o = std::max(worst_o, o_error);
      worst_state = std::max(worst_state, state_error);

      const ForwardResult forward = RunForward(call);
      const std::vector<double> forward_o(forward.o.begin(), forward.o.end());
      EXPECT_LE(MaxHeadRelativeError(o, forward_o, kRows, shape.value_heads, shape.value_dim),
                2 * kTolerance);
    }
  }
  std::printf("worst relative error: o %.2e, state %.2e\n", worst_o, worst_state);
}

// With k = 0 a state of ones becomes exp(g) itself.
TEST(DeltaRuleStep, DecayIsTheExponentialWithinTwoUlp) {
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = 1;
  shape.key_dim = shape.value_dim = 32;
  double worst_exp = 0.0;
  double worst_softplus = 0.0;
  for (const GateKind gate : {GateKind::kChannelPreactivated, GateKind::kChannelSoftplus}) {
    shape.gate = gate;
    DeltaRuleRows rows;
    rows.rows = 1;
    rows.q = rows.k = rows.v = rows.f = std::vector<float>(32);
    rows.beta = rows.a_log = {0.0f};
    Random random(43);
    for (int round = 0; round < 2000; ++round) {
      for (float& f : rows.f) {
        const double size = std::exp(random.Uniform(std::log(1e-6), std::log(86.0)));
        f = static_cast<float>(gate == GateKind::kChannelPreactivated || round % 2 == 0 ? -size
                                                                                        : size);
      }
      std::vector<std::vector<float>> states = {std::vector<float>(32 * 32, 1.0f)};
      Step(shape, rows, states);
      for (int c = 0; c < 32; ++c) {
        const double f = rows.f[c];
        if (gate == GateKind::kChannelPreactivated) {
          worst_exp = std::max(worst_exp, std::abs(states[0][c] / std::exp(f) - 1.0));
        } else {  // exp(-softplus(f)); an error of the softplus counts f times
          const double expected = 1.0 / (1.0 + std::exp(f));
          worst_softplus =
              std::max(worst_softplus, std::abs(states[0][c] / expected - 1.0) / std::max(1.0, f));
        }
      }
    }
  }
  std::printf("worst relative error: exp %.2e, softplus %.2e\n", worst_exp, worst_softplus);
  EXPECT_LE(worst_exp, 2.4e-7);
  EXPECT_LE(worst_softplus, 2.4e-7);
}

TEST(DeltaRuleStep, BitsDoNotDependOnBatchOrThreads) {
  const DeltaRuleShape shape = Family(2, 4, 64, 64)[4];
  Random random(41);
  constexpr int64_t kBatch = 9;
  const DeltaRuleRows rows = RandomRows(shape, kBatch, Decays::kLogUniform, random);
  std::vector<std::vector<float>> initial;
  for (int64_t i = 0; i < kBatch; ++i) initial.push_back(random.NormalVector(StateSize(shape)));
  std::vector<float> alone_o;
  std::vector<std::vector<float>> alone_states;
  for (int64_t i = 0; i < kBatch; ++i) {
    std::vector<std::vector<float>> state = {initial[i]};
    const std::vector<float> o = Step(shape, Slice(shape, rows, i, i + 1), state);
    alone_o.insert(alone_o.end(), o.begin(), o.end());
    alone_states.push_back(state[0]);
  }
  for (const int threads : {1, 2, 5}) {
    std::vector<std::vector<float>> states = initial;
    EXPECT_EQ(ByteDifference(Step(shape, rows, states, threads), alone_o), "");
    for (int64_t i = 0; i < kBatch; ++i) EXPECT_EQ(ByteDifference(states[i], alone_states[i]), "");
  }
}

TEST(DeltaRuleStep, NaNStaysInItsSequence) {
  const DeltaRuleShape shape = Family(1, 2, 32, 32)[4];
  Random random(42);
  DeltaRuleRows rows = RandomRows(shape, 3, Decays::kTypical, random);
  const std::vector<std::vector<float>> initial(3, random.NormalVector(StateSize(shape)));
  std::vector<std::vector<float>> expected = initial;
  Step(shape, rows, expected);
  rows.v[1 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::vector<float>> states = initial;
  Step(shape, rows, states);
  EXPECT_EQ(ByteDifference(states[0], expected[0]), "");
  EXPECT_FALSE(AllFinite(states[1]));
  EXPECT_EQ(ByteDifference(states[2], expected[2]), "");
}

}  // namespace
}  // namespace deltafill::test
