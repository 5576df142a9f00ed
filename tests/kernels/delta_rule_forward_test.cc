// The forward pass against the float64 recurrence: relative error <= 2e-6 per head.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/delta_rule_cases.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;
using kernels::WriteRule;

constexpr double kTolerance = 2e-6;

struct ForwardErrors {
  double o = 0.0;
  double state = 0.0;
};

std::vector<double> Widened(const std::vector<float>& values) {
  return std::vector<double>(values.begin(), values.end());
}

// Runs one sequence from a random initial state, which the reference gets too.
ForwardErrors CompareSequence(const DeltaRuleShape& shape, const DeltaRuleRows& rows,
                              const std::vector<float>& initial_state) {
  ForwardCall call = SingleSequence(shape, rows);
  call.initial_states = {initial_state};
  call.padding = 5;
  const ForwardResult actual = RunForward(call);
  EXPECT_EQ(actual.error, "");
  std::vector<double> state =
      initial_state.empty() ? std::vector<double>(StateSize(shape)) : Widened(initial_state);
  const std::vector<double> o = ReferenceForward(shape, rows, &state);
  ForwardErrors errors;
  errors.o = MaxHeadRelativeError(actual.o, o, rows.rows, shape.value_heads, shape.value_dim);
  errors.state = MaxHeadRelativeError(actual.final_states[0], state, 1, shape.value_heads,
                                      static_cast<int64_t>(shape.value_dim) * shape.key_dim);
  return errors;
}

void ExpectAccurate(const DeltaRuleShape& shape, int64_t rows, Decays decays, uint64_t seed,
                    bool with_initial_state, ForwardErrors* worst) {
  SCOPED_TRACE(Describe(shape) + " rows=" + std::to_string(rows) + " decays=" +
               std::to_string(static_cast<int>(decays)) + " seed=" + std::to_string(seed));
  Random random(seed);
  const DeltaRuleRows inputs = RandomRows(shape, rows, decays, random);
  std::vector<float> initial;
  if (with_initial_state) initial = random.NormalVector(StateSize(shape), 0.3);
  const ForwardErrors errors = CompareSequence(shape, inputs, initial);
  EXPECT_LE(errors.o, kTolerance);
  EXPECT_LE(errors.state, kTolerance);
  worst->o = std::max(worst->o, errors.o);
  worst->state = std::max(worst->state, errors.state);
}

TEST(DeltaRuleForward, EveryFamilyMemberAndEveryDecay) {
  ForwardErrors worst;
  uint64_t seed = 1;
  for (const auto& [key_dim, value_dim] : {std::pair{32, 32}, {64, 32}, {128, 128}}) {
    for (DeltaRuleShape shape : Family(1, 2, key_dim, value_dim)) {
      for (const Decays decays : kAllDecays) {
        shape.normalize_qk = seed % 3 != 0;
        shape.beta_is_logit = seed % 5 != 0;
        ExpectAccurate(shape, 150, decays, seed, seed % 2 == 0, &worst);
        ++seed;
      }
    }
  }
  RecordProperty("worst_o", std::to_string(worst.o));
  std::printf("worst relative error: o %.2e, state %.2e\n", worst.o, worst.state);
}

TEST(DeltaRuleForward, EveryLength) {
  ForwardErrors worst;
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = 1;
  shape.key_dim = 64;
  shape.value_dim = 128;
  for (const int64_t rows : {0,  1,  2,  3,  4,  7,  8,  9,  15,  16,  17,  31,  32,  33,  47,
                             48, 49, 63, 64, 65, 79, 80, 81, 127, 128, 129, 191, 192, 193, 500}) {
    for (const bool initial : {false, true}) {
      if (rows == 0 && !initial) continue;
      ExpectAccurate(shape, rows, Decays::kTypical, 100 + rows, initial, &worst);
      ExpectAccurate(shape, rows, Decays::kFastThenSlow, 200 + rows, initial, &worst);
    }
  }
  std::printf("worst relative error: o %.2e, state %.2e\n", worst.o, worst.state);
}

TEST(DeltaRuleForward, RandomShapes) {
  ForwardErrors worst;
  constexpr int kDims[] = {32, 64, 128};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed * 7919);
    DeltaRuleShape shape;
    shape.heads = static_cast<int>(random.Integer(1, 3));
    shape.value_heads = shape.heads * static_cast<int>(random.Integer(1, 3));
    shape.key_dim = kDims[random.Integer(0, 2)];
    shape.value_dim = kDims[random.Integer(0, 2)];
    shape.gate = static_cast<GateKind>(random.Integer(0, 5));
    shape.write = random.Integer(0, 4) == 0 ? WriteRule::kLinear : WriteRule::kDelta;
    shape.lower_bound = static_cast<float>(random.Uniform(-5.0, -0.1));
    shape.normalize_qk = random.Integer(0, 1) == 0;
    shape.beta_is_logit = random.Integer(0, 1) == 0;
    shape.query_scale = random.Integer(0, 1) == 0 ? 0.0f : 0.37f;
    ExpectAccurate(shape, random.Integer(1, 300), kAllDecays[random.Integer(0, 5)], seed,
                   random.Integer(0, 1) == 0, &worst);
  }
  std::printf("worst relative error: o %.2e, state %.2e\n", worst.o, worst.state);
}

// The softplus gate is unbounded below, and its input may be anything.
TEST(DeltaRuleForward, ExtremeGateInputsStayFinite) {
  for (DeltaRuleShape shape : Family(1, 1, 64, 64)) {
    if (shape.gate == GateKind::kNone) continue;
    Random random(5);
    DeltaRuleRows rows = RandomRows(shape, 200, Decays::kTypical, random);
    const bool preactivated =
        shape.gate == GateKind::kScalarPreactivated || shape.gate == GateKind::kChannelPreactivated;
    constexpr float kExtremes[] = {1e30f, -1e30f, 3000.0f, -3000.0f, 1e-30f, 0.0f, 120.0f};
    for (size_t i = 0; i < rows.f.size(); i += 3) {
      const float extreme = kExtremes[random.Integer(0, 6)];
      rows.f[i] = preactivated ? -std::fabs(extreme) : extreme;
    }
    SCOPED_TRACE(Describe(shape));
    const ForwardErrors errors = CompareSequence(shape, rows, {});
    EXPECT_LE(errors.o, kTolerance);
    EXPECT_LE(errors.state, kTolerance);
  }
}

}  // namespace
}  // namespace deltafill::test
