// The error metric of every operator test: ||x - ref||_F / ||ref||_F, per head (DESIGN section 3).
#ifndef DELTAFILL_TESTS_TESTING_RELATIVE_ERROR_H_
#define DELTAFILL_TESTS_TESTING_RELATIVE_ERROR_H_

#include <cstdint>
#include <span>
#include <string>

namespace deltafill::test {

// Infinite if `actual` has a NaN or an infinity, or differs from an all-zero reference. Sizes must
// be equal.
double RelativeError(std::span<const float> actual, std::span<const double> expected);

// Largest error over heads of packed rows: both are [rows, heads * width], contiguous. A state
// [heads, V, K] is rows = 1, width = V * K.
double MaxHeadRelativeError(std::span<const float> actual, std::span<const double> expected,
                            int64_t rows, int64_t heads, int64_t width);

bool AllFinite(std::span<const float> values);

// Empty if the bits are equal; else says the count and the first place and values that differ.
// EXPECT_EQ(ByteDifference(a, b), "").
std::string ByteDifference(std::span<const float> actual, std::span<const float> expected);

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_RELATIVE_ERROR_H_
