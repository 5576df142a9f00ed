// Rounding to bf16 by way of float64 arithmetic that knows nothing of bit tricks.
#ifndef DELTAFILL_TESTS_KERNELS_BF16_ROUNDING_H_
#define DELTAFILL_TESTS_KERNELS_BF16_ROUNDING_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace deltafill::kernels {

// To nearest, ties to even.
inline float RoundedToBf16(float x) {
  const float down = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
  const float up = std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) + 0x10000u);
  const double below = std::abs(static_cast<double>(x) - down);
  const double above = std::abs(static_cast<double>(up) - x);
  if (below != above) return below < above ? down : up;
  return (std::bit_cast<uint32_t>(down) & 0x10000u) == 0 ? down : up;
}

inline std::vector<float> RoundedToBf16(std::span<const float> values) {
  std::vector<float> rounded;
  for (float value : values) rounded.push_back(RoundedToBf16(value));
  return rounded;
}

}  // namespace deltafill::kernels

#endif  // DELTAFILL_TESTS_KERNELS_BF16_ROUNDING_H_
