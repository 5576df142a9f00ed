#include "tests/testing/relative_error.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace deltafill::test {
namespace {

// Squared norms of one head's difference and reference.
struct SquaredNorms {
  double difference = 0.0;
  double reference = 0.0;
  bool finite = true;

  void Add(float actual, double expected) {
    if (!std::isfinite(actual)) finite = false;
    difference += (actual - expected) * (actual - expected);
    reference += expected * expected;
  }

  double Ratio() const {
    if (!finite) return std::numeric_limits<double>::infinity();
    if (reference == 0.0) {
      return difference == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
    }
    return std::sqrt(difference / reference);
  }
};

}  // namespace

double RelativeError(std::span<const float> actual, std::span<const double> expected) {
  return MaxHeadRelativeError(actual, expected, 1, 1, static_cast<int64_t>(expected.size()));
}

double MaxHeadRelativeError(std::span<const float> actual, std::span<const double> expected,
                            int64_t rows, int64_t heads, int64_t width) {
  const size_t count = static_cast<size_t>(rows * heads * width);
  if (actual.size() != count || expected.size() != count) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0.0;
  for (int64_t head = 0; head < heads; ++head) {
    SquaredNorms norms;
    for (int64_t row = 0; row < rows; ++row) {
      const size_t begin = static_cast<size_t>((row * heads + head) * width);
      for (size_t i = begin; i < begin + static_cast<size_t>(width); ++i) {
        norms.Add(actual[i], expected[i]);
      }
    }
    largest = std::max(largest, norms.Ratio());
  }
  return largest;
}

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

std::string ByteDifference(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size()) {
    return "sizes " + std::to_string(actual.size()) + " and " + std::to_string(expected.size());
  }
  size_t different = 0;
  size_t first = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (different++ == 0) first = i;
  }
  if (different == 0) return "";
  return std::to_string(different) + " of " + std::to_string(actual.size()) + " differ, first at " +
         std::to_string(first) + ": " + std::to_string(actual[first]) + " and " +
         std::to_string(expected[first]);
}

}  // namespace deltafill::test
