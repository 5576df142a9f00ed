// Exact or correctly rounded conversions between fp32 and the 16-bit storage types, one element at
// a time. Bits are carried as uint16_t.
#ifndef DELTAFILL_KERNELS_CPU_DTYPE_CONVERSION_H_
#define DELTAFILL_KERNELS_CPU_DTYPE_CONVERSION_H_

#include <bit>
#include <cstdint>

namespace deltafill::kernels::cpu {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

inline float ToFloat(float x) { return x; }
inline float ToFloat(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Moves exponent and mantissa in place, then multiplies the bias away: exact for subnormals too.
inline float ToFloat(Fp16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  uint32_t bits = magnitude << 13;
  if (magnitude >= 0x7c00u) {
    bits |= 0x7f800000u;  // infinity or NaN
  } else {
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) * 0x1p112f);
  }
  return std::bit_cast<float>(sign | bits);
}

// To nearest, ties to even; NaN stays a (quiet) NaN.
inline Bf16 ToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_DTYPE_CONVERSION_H_
