// Inputs and runs shared by the delta-rule tests of the CPU backend.
#ifndef DELTAFILL_TESTS_KERNELS_DELTA_RULE_CASES_H_
#define DELTAFILL_TESTS_KERNELS_DELTA_RULE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/delta_rule.h"
#include "tests/testing/delta_rule_reference.h"
#include "tests/testing/random.h"

namespace deltafill::test {

// How the log decays of a sequence are distributed.
enum class Decays {
  kTypical,       // what a trained model has: a fraction of 1 to a few a token
  kSlow,          // around -1e-4 a token
  kFast,          // around -50 a token
  kLogUniform,    // -1e-4 to -50, every token and channel on its own
  kFastThenSlow,  // in each 64 tokens 20 at -50, then slow ones
  kFastTokens,    // slow, with single tokens at -50 for all channels
};

inline constexpr Decays kAllDecays[] = {Decays::kTypical,      Decays::kSlow,
                                        Decays::kFast,         Decays::kLogUniform,
                                        Decays::kFastThenSlow, Decays::kFastTokens};

// Random inputs of `rows` rows. Gates follow `decays` as far as the gate kind can express it (the
// lower bound's strongest is lower_bound).
DeltaRuleRows RandomRows(const kernels::DeltaRuleShape& shape, int64_t rows, Decays decays,
                         Random& random);

// Rows [begin, end), and two sequences one after the other.
DeltaRuleRows Slice(const kernels::DeltaRuleShape& shape, const DeltaRuleRows& rows, int64_t begin,
                    int64_t end);
DeltaRuleRows Concatenate(const DeltaRuleRows& first, const DeltaRuleRows& second);

int64_t StateSize(const kernels::DeltaRuleShape& shape);

// A packed forward call.
struct ForwardCall {
  kernels::DeltaRuleShape shape;
  DeltaRuleRows rows;
  std::vector<int64_t> offsets;
  std::vector<std::vector<float>> initial_states;    // empty: nullptr; an empty entry too
  std::vector<std::pair<int, int64_t>> checkpoints;  // (sequence, tokens)
  int threads = 1;
  int64_t padding = 0;  // elements between rows
};

struct ForwardResult {
  std::string error;     // empty if OK and nothing outside the outputs was written
  std::vector<float> o;  // [rows, HV*V]
  std::vector<std::vector<float>> final_states;
  std::vector<std::vector<float>> checkpoints;
};

// Runs the call with outputs filled with NaN and guarded on all sides.
ForwardResult RunForward(const ForwardCall& call);

// One sequence from the zero state.
ForwardCall SingleSequence(const kernels::DeltaRuleShape& shape, const DeltaRuleRows& rows);

struct SummaryResult {
  std::string error;
  std::vector<float> m;  // [HV, K, K]
  std::vector<float> b;  // [HV, V, K]
};

SummaryResult RunSummary(const kernels::DeltaRuleShape& shape, const DeltaRuleRows& rows,
                         int threads = 1);

// A short description of a shape for SCOPED_TRACE.
std::string Describe(const kernels::DeltaRuleShape& shape);

// One of every family member that the operators must serve: gate kinds by write rules.
std::vector<kernels::DeltaRuleShape> Family(int heads, int value_heads, int key_dim, int value_dim);

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_KERNELS_DELTA_RULE_CASES_H_
