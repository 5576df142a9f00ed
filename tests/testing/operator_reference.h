// The operators of kernels/operators.h in float64, straight from their definitions. Rows are dense.
// (The delta rule's reference has its own file.)
#ifndef DELTAFILL_TESTS_TESTING_OPERATOR_REFERENCE_H_
#define DELTAFILL_TESTS_TESTING_OPERATOR_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace deltafill::test {

// y[rows, out] = x[rows, in] w[out, in]^T + bias + y_before; bias and y_before may be empty.
std::vector<double> MatMulReference(std::span<const float> x, std::span<const float> w,
                                    std::span<const float> bias, std::span<const float> y_before,
                                    int64_t rows, int64_t out_features, int64_t in_features);

// y = x / sqrt(mean(x^2) + eps) * weight (* sigmoid(gate)); gate may be empty.
std::vector<double> RmsNormReference(std::span<const float> x, std::span<const float> weight,
                                     std::span<const float> gate, int64_t rows, int64_t groups,
                                     int64_t width, double eps);

// One sequence: y[rows, channels] = silu of the causal convolution with weight [channels, 4]; tail
// [channels, 3] comes before the first row, zeros if empty.
std::vector<double> ShortConvReference(std::span<const float> x, std::span<const float> weight,
                                       std::span<const float> tail, int64_t rows, int64_t channels);

// The tail after `rows` rows; exact, hence float.
std::vector<float> ConvTailReference(std::span<const float> x, std::span<const float> tail,
                                     int64_t rows, int64_t channels);

// y = gate sigmoid(gate) up.
std::vector<double> SwiGluReference(std::span<const float> gate, std::span<const float> up);

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_OPERATOR_REFERENCE_H_
