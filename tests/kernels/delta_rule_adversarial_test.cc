// Regimes in which the transition over a block is large although every channel is reset, so that
// whoever drops a state because "everything has decayed" is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/kernels/delta_rule_cases.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;

constexpr int64_t kTokens = 2048;
constexpr float kReset = 40.0f;   // g = -5 to the last bit
constexpr float kKeep = -8.517f;  // g = -1.0e-3

DeltaRuleShape AdversarialShape() {
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = 4;
  shape.key_dim = 128;
  shape.value_dim = 64;
  shape.gate = GateKind::kChannelLowerBound;
  shape.lower_bound = -5.0f;
  return shape;
}

// Keys and queries share a direction: every channel has mean `common` standard deviations.
DeltaRuleRows AdversarialRows(const DeltaRuleShape& shape, double common, Random& random) {
  DeltaRuleRows rows;
  rows.rows = kTokens;
  const int64_t width = static_cast<int64_t>(shape.heads) * shape.key_dim;
  rows.q = random.NormalVector(kTokens * width, 1.0, common);
  rows.k = random.NormalVector(kTokens * width, 1.0, common);
  rows.v = random.NormalVector(kTokens * shape.value_heads * shape.value_dim);
  rows.f.resize(static_cast<size_t>(kTokens) * shape.value_heads * shape.key_dim);
  rows.beta = random.NormalVector(kTokens * shape.value_heads);
  rows.a_log.assign(shape.value_heads, 0.0f);
  return rows;
}

template <typename IsReset>
void SetGates(const DeltaRuleShape& shape, IsReset&& is_reset, DeltaRuleRows& rows) {
  for (size_t i = 0; i < rows.f.size(); ++i) {
    const int channel = static_cast<int>(i % shape.key_dim);
    const int64_t row = static_cast<int64_t>(i / (shape.key_dim * shape.value_heads));
    rows.f[i] = is_reset(row, channel) ? kReset : kKeep;
  }
}

// In each 16 tokens one half of the channels is reset for 4, then the other for 4, then none for 8.
bool IsBlockSwapReset(int64_t row, int channel) {
  const int64_t phase = row % 16;
  if (phase >= 8) return false;
  const bool second_half = channel >= 64;
  const bool second_first = (row / 16) % 2 == 1;
  return second_half == ((phase >= 4) != second_first);
}

void ExpectAccurate(const char* name, const DeltaRuleShape& shape, const DeltaRuleRows& rows,
                    double tolerance = 2e-6) {
  const ForwardResult actual = RunForward(SingleSequence(shape, rows));
  ASSERT_EQ(actual.error, "");
  std::vector<double> state(StateSize(shape));
  const std::vector<double> o = ReferenceForward(shape, rows, &state);
  const double o_error =
      MaxHeadRelativeError(actual.o, o, kTokens, shape.value_heads, shape.value_dim);
  const double state_error =
      MaxHeadRelativeError(actual.final_states[0], state, 1, shape.value_heads,
                           static_cast<int64_t>(shape.value_dim) * shape.key_dim);
  std::printf("%s: relative error o %.2e, state %.2e\n", name, o_error, state_error);
  EXPECT_LE(o_error, tolerance);
  EXPECT_LE(state_error, tolerance);
}

TEST(DeltaRuleAdversarial, BlockSwap) {
  const DeltaRuleShape shape = AdversarialShape();
  Random random(21);
  DeltaRuleRows rows = AdversarialRows(shape, 0.0, random);
  SetGates(shape, IsBlockSwapReset, rows);
  ExpectAccurate("block-swap", shape, rows);
}

TEST(DeltaRuleAdversarial, BlockSwapWithSparseWrites) {
  const DeltaRuleShape shape = AdversarialShape();
  Random random(22);
  DeltaRuleRows rows = AdversarialRows(shape, 3.0, random);
  SetGates(shape, IsBlockSwapReset, rows);
  for (size_t i = 0; i < rows.beta.size(); ++i) {
    rows.beta[i] = (i / shape.value_heads) % 16 == 11 ? 6.0f : -4.0f;  // 0.998 or 0.018
  }
  ExpectAccurate("block-swap, sparse writes", shape, rows);
}

TEST(DeltaRuleAdversarial, RotatingReset) {
  const DeltaRuleShape shape = AdversarialShape();
  Random random(23);
  DeltaRuleRows rows = AdversarialRows(shape, 1.0, random);
  SetGates(
      shape, [](int64_t row, int channel) { return (row + channel) % 16 < 4; }, rows);
  ExpectAccurate("rotating reset", shape, rows);
}

// Equal unit keys without decay: the triangular solve's worst case, for beta up to 2. What is
// rounded across the key never fades, so the limit is twice the usual one; and towards beta 2 every
// token is a reflection, so that the recurrence itself amplifies errors by 1 / (2 - beta).
TEST(DeltaRuleAdversarial, RepeatedKeys) {
  for (const float beta : {0.02f, 1.0f, 1.99f}) {
    DeltaRuleShape shape = AdversarialShape();
    shape.gate = GateKind::kNone;
    shape.beta_is_logit = false;
    Random random(24);
    DeltaRuleRows rows = AdversarialRows(shape, 0.0, random);
    rows.f.clear();
    const size_t width = static_cast<size_t>(shape.heads) * shape.key_dim;
    for (size_t i = width; i < rows.k.size(); ++i) rows.k[i] = rows.k[i % width];
    rows.beta.assign(rows.beta.size(), beta);
    ExpectAccurate("repeated keys", shape, rows, 4e-6 * std::max(1.0, 1.0 / (2.0 - beta)));
  }
}

}  // namespace
}  // namespace deltafill::test
