// Seeded random numbers that are the same with every standard library.
#ifndef DELTAFILL_TESTS_TESTING_RANDOM_H_
#define DELTAFILL_TESTS_TESTING_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <vector>

namespace deltafill::test {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // In [low, high].
  int64_t Integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }

  // In [low, high).
  double Uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(engine_() >> 11) * 0x1p-53);
  }

  // Standard normal (Box-Muller).
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform(0.0, 1.0)));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform(0.0, 1.0));
  }

  void FillNormal(std::span<float> out, double scale = 1.0, double mean = 0.0) {
    for (float& value : out) value = static_cast<float>(mean + scale * Normal());
  }

  void FillUniform(std::span<float> out, double low, double high) {
    for (float& value : out) value = static_cast<float>(Uniform(low, high));
  }

  std::vector<float> NormalVector(int64_t count, double scale = 1.0, double mean = 0.0) {
    std::vector<float> out(static_cast<size_t>(count));
    FillNormal(out, scale, mean);
    return out;
  }

  std::vector<float> UniformVector(int64_t count, double low, double high) {
    std::vector<float> out(static_cast<size_t>(count));
    FillUniform(out, low, high);
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_RANDOM_H_
