// 16-bit floating point formats as checkpoints store them.
#ifndef DELTAFILL_WORKER_MODEL_FLOAT_FORMATS_H_
#define DELTAFILL_WORKER_MODEL_FLOAT_FORMATS_H_

#include <bit>
#include <cstdint>

namespace deltafill::worker {

// Exact.
inline float FloatFromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Exact; IEEE binary16 with subnormals.
inline float FloatFromHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

// To nearest even; finite values only.
inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_FLOAT_FORMATS_H_
