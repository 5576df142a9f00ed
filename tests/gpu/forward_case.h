// Runs the CUDA forward pass on host data and its float64 reference on the same bf16 values.
#ifndef DELTAFILL_TESTS_GPU_FORWARD_CASE_H_
#define DELTAFILL_TESTS_GPU_FORWARD_CASE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/forward.h"
#include "tests/testing/delta_rule_reference.h"
#include "tests/testing/random.h"

namespace deltafill::test {

enum class RowLayout {
  kContiguous,
  kFused,      // q, k, v, f, beta side by side in one row, as one projection writes them
  kUnaligned,  // the same with rows that are not multiples of 16 bytes apart
};

struct ForwardCase {
  kernels::DeltaRuleShape shape;
  std::vector<int64_t> lengths;                      // of the packed sequences
  DeltaRuleRows rows;                                // packed; bf16 values
  std::vector<std::vector<float>> initial;           // per sequence [HV, V, K]; empty: zero
  std::vector<std::pair<int, int64_t>> checkpoints;  // (sequence, tokens)
  RowLayout layout = RowLayout::kContiguous;
};

struct ForwardResult {
  std::vector<float> o;                          // [rows, HV*V]
  std::vector<std::vector<float>> final_states;  // per sequence
  std::vector<std::vector<float>> checkpoints;
  bool outside_untouched = false;  // bytes between and after the rows of o
};

// False where there is no CUDA device; says so once.
bool HaveDevice();

// Outputs are poisoned before the run.
kernels::Status RunForward(const ForwardCase& c, const kernels::cuda::ForwardTuning& tuning,
                           ForwardResult* result);

struct ReferenceResult {
  std::vector<double> o;
  std::vector<std::vector<double>> final_states;
};
ReferenceResult RunReference(const ForwardCase& c);

// Largest errors per head of o and of the final states against the reference.
struct ForwardErrors {
  double o = 0.0;
  double state = 0.0;
};
ForwardErrors CompareWithReference(const ForwardCase& c, const ForwardResult& result);

float RoundToBf16(float x);
void RoundAllToBf16(std::vector<float>* values);

// Normal q, k, v; logit beta; f and gate constants for decays around `decay` (log, negative).
DeltaRuleRows RandomRows(const kernels::DeltaRuleShape& shape, int64_t rows, double decay,
                         Random* random);
// The raw gate that gives the log decay `g` where a_log and dt_bias are 0.
float RawGate(const kernels::DeltaRuleShape& shape, double g);

// Rows [first, first + count) of a case's rows.
DeltaRuleRows SliceRows(const kernels::DeltaRuleShape& shape, const DeltaRuleRows& rows,
                        int64_t first, int64_t count);

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_GPU_FORWARD_CASE_H_
