// Small matrix products in registers, and transposition. Every output is one running sum over the
// inner index in ascending order, so its bits do not depend on tile shape or vector width.
// Per-target header: included once for each instruction set.
#if defined(DELTAFILL_KERNELS_CPU_DELTA_RULE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_DELTA_RULE_TILES_INL_H_
#undef DELTAFILL_KERNELS_CPU_DELTA_RULE_TILES_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_TILES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {

// Rows of a tile: with two vectors a row, accumulators, operands and broadcasts fit the registers
// (32 with AVX-512, 16 before).
inline constexpr int kTileRows = kLanes >= 16 ? 8 : 4;
inline constexpr int kTileVecs = 2;
inline constexpr int kTileColumns = kTileVecs * kLanes;

enum class Sign { kPlus, kMinus };

template <Sign kSign>
HWY_INLINE Vec Multiply(Vec a, Vec b, Vec sum) {
  return kSign == Sign::kPlus ? hn::MulAdd(a, b, sum) : hn::NegMulAdd(a, b, sum);
}

template <int kVecs>
struct Tile {
  Vec sum[kTileRows][kVecs];

  HWY_INLINE void SetZero() {
    for (int r = 0; r < kTileRows; ++r) {
      for (int c = 0; c < kVecs; ++c) sum[r][c] = hn::Zero(F32());
    }
  }

  // sum[r, :] +-= sum_k a[r * kRowStep + k * kInnerStep] b[k * kStride, :] for k < inner.
  template <Sign kSign, int kRowStep, int kInnerStep, int kStride>
  HWY_INLINE void Add(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int inner) {
    const F32 d;
    for (int k = 0; k < inner; ++k) {
      Vec row[kVecs];
      for (int c = 0; c < kVecs; ++c) row[c] = hn::Load(d, b + k * kStride + c * kLanes);
      for (int r = 0; r < kTileRows; ++r) {
        const Vec factor = hn::Set(d, a[r * kRowStep + k * kInnerStep]);
        for (int c = 0; c < kVecs; ++c) sum[r][c] = Multiply<kSign>(factor, row[c], sum[r][c]);
      }
    }
  }

  template <int kStride>
  HWY_INLINE void Store(float* to) const {
    for (int r = 0; r < kTileRows; ++r) {
      for (int c = 0; c < kVecs; ++c) hn::Store(sum[r][c], F32(), to + r * kStride + c * kLanes);
    }
  }
};

// Four rows of four elements, transposed.
template <class T>
HWY_INLINE void Transpose4x4(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  const hn::FixedTag<T, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride);
  const auto r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * to_stride);
}

// to[c, r] = from[r, c]; rows and columns are multiples of 4.
template <class T>
HWY_NOINLINE void Transpose(const T* from, int64_t from_stride, int rows, int columns, T* to,
                            int64_t to_stride) {
  for (int r = 0; r < rows; r += 4) {
    for (int c = 0; c < columns; c += 4) {
      Transpose4x4(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
}

}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_TILES_INL_H_
