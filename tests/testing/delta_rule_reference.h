// The delta rule in float64, token by token, straight from the equations of DESIGN section 3. Slow
// and obvious; every kernel is compared with it.
//
// Depends on the C++ standard library and kernels/'s plain headers only.
#ifndef DELTAFILL_TESTS_TESTING_DELTA_RULE_REFERENCE_H_
#define DELTAFILL_TESTS_TESTING_DELTA_RULE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/delta_rule.h"

namespace deltafill::test {

// Contiguous fp32 inputs of one sequence, as DeltaRuleInputs describes them.
struct DeltaRuleRows {
  int64_t rows = 0;
  std::vector<float> q;        // [rows, H*K]
  std::vector<float> k;        // [rows, H*K]
  std::vector<float> v;        // [rows, HV*V]
  std::vector<float> f;        // [rows, HV*K], [rows, HV], or empty: by the gate kind
  std::vector<float> beta;     // [rows, HV], or empty for kLinear
  std::vector<float> a_log;    // [HV] or empty
  std::vector<float> dt_bias;  // [HV*K] or [HV], by the gate kind; empty means 0
};

// Columns of f per value head: K, 1 or 0.
int GateWidth(const kernels::DeltaRuleShape& shape);

// Continues from *state [HV, V, K] over all rows and leaves the final state there. Returns o
// [rows, HV*V].
std::vector<double> ReferenceForward(const kernels::DeltaRuleShape& shape,
                                     const DeltaRuleRows& rows, std::vector<double>* state);

// The rows' map S_out = M S_in + B, from the same recurrence: b [HV, V, K] starts from zero, and
// column i of m [HV, K, K] (out channel, in channel) from the state e_i with v = 0.
void ReferenceSummary(const kernels::DeltaRuleShape& shape, const DeltaRuleRows& rows,
                      std::vector<double>* m, std::vector<double>* b);

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_DELTA_RULE_REFERENCE_H_
