// The segment summary (M, B): S_out = M S_in + B per value head.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/kernels/delta_rule_cases.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;
using kernels::WriteRule;

constexpr double kTolerance = 2e-6;

// ||actual - expected||_F / max(||expected||_F, floor) for one head.
double MapError(const float* actual, const double* expected, int64_t count, double floor) {
  double difference = 0.0;
  double norm = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), floor);
}

// A map that has decayed below 1e-6 adds nothing to an fp32 state.
constexpr double kFloor = 1e-6;

double MaxMapError(const DeltaRuleShape& shape, const std::vector<float>& actual,
                   const std::vector<double>& expected, double floor = kFloor) {
  const int64_t count = static_cast<int64_t>(expected.size()) / shape.value_heads;
  double worst = 0.0;
  for (int64_t head = 0; head < shape.value_heads; ++head) {
    const double error =
        MapError(actual.data() + head * count, expected.data() + head * count, count, floor);
    if (!(error <= worst)) worst = error;  // NaN counts
  }
  return worst;
}

// M S + B in float64: state, b [HV, V, K]; m [HV, K, K].
std::vector<double> Apply(const DeltaRuleShape& shape, const std::vector<float>& m,
                          const std::vector<double>& state, const std::vector<float>& b) {
  const size_t key_dim = static_cast<size_t>(shape.key_dim);
  const size_t value_dim = static_cast<size_t>(shape.value_dim);
  std::vector<double> out(b.begin(), b.end());
  for (size_t column = 0; column < shape.value_heads * value_dim; ++column) {
    const float* map = m.data() + column / value_dim * key_dim * key_dim;
    for (size_t k_out = 0; k_out < key_dim; ++k_out) {
      for (size_t k_in = 0; k_in < key_dim; ++k_in) {
        out[column * key_dim + k_out] +=
            map[k_out * key_dim + k_in] * state[column * key_dim + k_in];
      }
    }
  }
  return out;
}

TEST(DeltaRuleSummary, MatchesTheReference) {
  double worst_m = 0.0;
  double worst_b = 0.0;
  uint64_t seed = 300;
  for (const auto& [key_dim, value_dim] : {std::pair{32, 64}, {128, 32}}) {
    for (DeltaRuleShape shape : Family(1, 2, key_dim, value_dim)) {
      for (const Decays decays : kAllDecays) {
        Random random(++seed);
        shape.normalize_qk = seed % 3 != 0;
        shape.beta_is_logit = seed % 5 != 0;
        const int64_t length = random.Integer(1, 200);
        SCOPED_TRACE(Describe(shape) + " rows=" + std::to_string(length) + " seed=" +
                     std::to_string(seed) + " decays=" + std::to_string(static_cast<int>(decays)));
        const DeltaRuleRows rows = RandomRows(shape, length, decays, random);
        const SummaryResult actual = RunSummary(shape, rows);
        ASSERT_EQ(actual.error, "");
        std::vector<double> m, b;
        ReferenceSummary(shape, rows, &m, &b);
        const double m_error = MaxMapError(shape, actual.m, m);
        const double b_error = MaxMapError(shape, actual.b, b);
        EXPECT_LE(m_error, kTolerance);
        // e^-50 cannot be better than 50 times what its fp32 gates are.
        EXPECT_LE(MaxMapError(shape, actual.m, m, 1e-25), 5 * kTolerance);
        EXPECT_LE(b_error, kTolerance);
        worst_m = std::max(worst_m, m_error);
        worst_b = std::max(worst_b, b_error);
      }
    }
  }
  std::printf("worst relative error: M %.2e, B %.2e\n", worst_m, worst_b);
}

TEST(DeltaRuleSummary, OfNoRowsIsTheIdentity) {
  const DeltaRuleShape shape = Family(1, 2, 64, 32)[4];
  Random random(31);
  const SummaryResult summary = RunSummary(shape, RandomRows(shape, 0, Decays::kSlow, random));
  ASSERT_EQ(summary.error, "");
  for (size_t i = 0; i < summary.m.size(); ++i) {
    ASSERT_EQ(summary.m[i], i % (64 * 64) % 65 == 0 ? 1.0f : 0.0f) << i;
  }
  for (const float value : summary.b) ASSERT_EQ(value, 0.0f);
}

TEST(DeltaRuleSummary, AppliedToAStateEqualsTheForwardPass) {
  for (const DeltaRuleShape& shape : Family(2, 2, 64, 128)) {
    SCOPED_TRACE(Describe(shape));
    Random random(32);
    const DeltaRuleRows rows = RandomRows(shape, 320, Decays::kTypical, random);
    ForwardCall call = SingleSequence(shape, rows);
    call.initial_states = {random.NormalVector(StateSize(shape))};
    const ForwardResult forward = RunForward(call);
    const SummaryResult summary = RunSummary(shape, rows);
    const std::vector<double> state(call.initial_states[0].begin(), call.initial_states[0].end());
    const std::vector<double> folded = Apply(shape, summary.m, state, summary.b);
    EXPECT_LE(MaxHeadRelativeError(forward.final_states[0], folded, 1, shape.value_heads,
                                   static_cast<int64_t>(shape.value_dim) * shape.key_dim),
              kTolerance);
  }
}

// (M2, B2) after (M1, B1) is (M2 M1, M2 B1 + B2).
TEST(DeltaRuleSummary, TwoFoldIntoOne) {
  for (const DeltaRuleShape& shape : Family(1, 2, 64, 32)) {
    SCOPED_TRACE(Describe(shape));
    Random random(33);
    const DeltaRuleRows rows = RandomRows(shape, 300, Decays::kSlow, random);
    const SummaryResult first = RunSummary(shape, Slice(shape, rows, 0, 192));
    const SummaryResult second = RunSummary(shape, Slice(shape, rows, 192, 300));
    const SummaryResult whole = RunSummary(shape, rows);
    const std::vector<double> first_b(first.b.begin(), first.b.end());
    const std::vector<double> b = Apply(shape, second.m, first_b, second.b);
    EXPECT_LE(MaxMapError(shape, whole.b, b), kTolerance);

    const size_t key_dim = static_cast<size_t>(shape.key_dim);
    std::vector<double> m(first.m.size());
    for (size_t i = 0; i < m.size(); ++i) {
      const size_t head = i / (key_dim * key_dim) * key_dim * key_dim;
      const size_t row = i % (key_dim * key_dim) / key_dim;
      for (size_t k = 0; k < key_dim; ++k) {
        m[i] += static_cast<double>(second.m[head + row * key_dim + k]) *
                first.m[head + k * key_dim + i % key_dim];
      }
    }
    EXPECT_LE(MaxMapError(shape, whole.m, m), kTolerance);
  }
}

TEST(DeltaRuleSummary, BitsDoNotDependOnThreads) {
  const DeltaRuleShape shape = Family(1, 2, 128, 64)[4];
  Random random(34);
  const DeltaRuleRows rows = RandomRows(shape, 200, Decays::kLogUniform, random);
  const SummaryResult one = RunSummary(shape, rows, 1);
  for (const int threads : {2, 3, 16}) {
    const SummaryResult more = RunSummary(shape, rows, threads);
    EXPECT_EQ(ByteDifference(more.m, one.m), "");
    EXPECT_EQ(ByteDifference(more.b, one.b), "");
  }
}

// B is the state that a forward pass from zero ends with, bit for bit.
TEST(DeltaRuleSummary, ConstantPartEqualsTheForwardPassFromZero) {
  for (const DeltaRuleShape& shape : Family(1, 2, 32, 32)) {
    Random random(35);
    const DeltaRuleRows rows = RandomRows(shape, 150, Decays::kTypical, random);
    EXPECT_EQ(ByteDifference(RunSummary(shape, rows).b,
                             RunForward(SingleSequence(shape, rows)).final_states[0]),
              "");
  }
}

}  // namespace
}  // namespace deltafill::test
