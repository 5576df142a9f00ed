#include "kernels/cpu/latent_tiles.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/latent_tiles.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

HWY_INLINE int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(Tag())); }
// The first `count` lanes: all from a vector's worth on, none below 1.
HWY_INLINE hn::Mask<Tag> Rest(int64_t count) {
  const int64_t lanes = LaneCount();
  return hn::FirstN(Tag(), static_cast<size_t>(count < 0 ? 0 : count < lanes ? count : lanes));
}

// Keeps a NaN that either side has: x86's maximum alone returns its second operand then.
HWY_INLINE Vec MaxKeepingNan(Vec a, Vec b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
}

HWY_INLINE float LargestScore(const float* scores, int64_t width) {
  const Tag d;
  const Vec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vec largest = lowest;
  int64_t i = 0;
  for (; i + LaneCount() <= width; i += LaneCount()) {
    largest = MaxKeepingNan(largest, hn::LoadU(d, scores + i));
  }
  if (i < width) {
    const auto mask = Rest(width - i);
    const Vec v = hn::IfThenElse(mask, hn::MaskedLoad(mask, d, scores + i), lowest);
    largest = MaxKeepingNan(largest, v);
  }
  if (!hn::AllFalse(d, hn::IsNaN(largest))) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Returns the sum of the row's exponentials.
HWY_INLINE float ExpRow(float* scores, int64_t width, float max) {
  const Tag d;
  const Vec m = hn::Set(d, max);
  Vec sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + LaneCount() <= width; i += LaneCount()) {
    const Vec p = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, scores + i), m));
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, scores + i);
  }
  if (i < width) {
    const auto mask = Rest(width - i);
    const Vec p = ExpOfNonPositive(d, hn::Sub(hn::MaskedLoad(mask, d, scores + i), m));
    sum = hn::Add(sum, hn::IfThenElseZero(mask, p));
    hn::BlendedStore(p, mask, d, scores + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_INLINE float ExpOfDifference(float low, float high) {
  const Tag d;
  return hn::GetLane(ExpOfNonPositive(d, hn::Set(d, low - high)));
}

// NaN if either is.
HWY_INLINE float Larger(float a, float b) { return a != a || a > b ? a : b; }

void AddTileRows(const ScoreTile& tile, bool first, const RunningSoftmax& softmax) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* const scores = tile.scores + r * tile.stride;
    const int64_t width = tile.causal ? r + 1 : tile.width;
    const float in_tile = LargestScore(scores, width);
    const float max = first ? in_tile : Larger(softmax.max[r], in_tile);
    const float sum = ExpRow(scores, width, max);
    const float rescale = first ? 0.0f : ExpOfDifference(softmax.max[r], max);
    softmax.sum[r] = first ? sum : softmax.sum[r] * rescale + sum;
    softmax.rescale[r] = rescale;
    softmax.max[r] = max;
  }
}

void AddProductRows(const float* product, int64_t product_stride, bool first, const float* rescale,
                    const OutputRows& output) {
  const Tag d;
  for (int64_t r = 0; r < output.rows; ++r) {
    const float* const from = product + r * product_stride;
    float* const o = output.o + r * output.stride;
    const Vec factor = hn::Set(d, first ? 0.0f : rescale[r]);
    int64_t i = 0;
    for (; i + LaneCount() <= output.width; i += LaneCount()) {
      const Vec v = hn::LoadU(d, from + i);
      hn::StoreU(first ? v : hn::MulAdd(hn::LoadU(d, o + i), factor, v), d, o + i);
    }
    if (i < output.width) {
      const auto mask = Rest(output.width - i);
      const Vec v = hn::MaskedLoad(mask, d, from + i);
      const Vec before = hn::MaskedLoad(mask, d, o + i);
      hn::BlendedStore(first ? v : hn::MulAdd(before, factor, v), mask, d, o + i);
    }
  }
}

// kVectors columns' worth of row r, the last vector masked if `rest` says so.
template <int kVectors>
HWY_INLINE void OwnBlockColumns(const float* probabilities, int64_t keys, const float* v,
                                int64_t v_stride, float rescale, bool first, float sum, float* o,
                                int64_t width) {
  const Tag d;
  const int64_t lanes = LaneCount();
  Vec acc[kVectors];
  hn::Mask<Tag> mask[kVectors];
  const Vec factor = hn::Set(d, rescale);
  for (int n = 0; n < kVectors; ++n) {
    mask[n] = Rest(width - n * lanes);
    acc[n] = first ? hn::Zero(d) : hn::Mul(hn::MaskedLoad(mask[n], d, o + n * lanes), factor);
  }
  for (int64_t j = 0; j < keys; ++j) {
    const Vec p = hn::Set(d, probabilities[j]);
    const float* const row = v + j * v_stride;
    for (int n = 0; n < kVectors; ++n) {
      acc[n] = hn::MulAdd(p, hn::MaskedLoad(mask[n], d, row + n * lanes), acc[n]);
    }
  }
  const Vec divisor = hn::Set(d, sum);
  for (int n = 0; n < kVectors; ++n) {
    hn::BlendedStore(hn::Div(acc[n], divisor), mask[n], d, o + n * lanes);
  }
}

void FinishRows(const ScoreTile& probabilities, const float* v, int64_t v_stride, bool first,
                const RunningSoftmax& softmax, const OutputRows& output) {
  const int64_t lanes = LaneCount();
  for (int64_t r = 0; r < output.rows; ++r) {
    const float* const p = probabilities.scores + r * probabilities.stride;
    float* const o = output.o + r * output.stride;
    const float rescale = softmax.rescale[r];
    const float sum = softmax.sum[r];
    for (int64_t c = 0; c < output.width;) {
      const int64_t left = output.width - c;
      if (left > 4 * lanes) {
        OwnBlockColumns<8>(p, r + 1, v + c, v_stride, rescale, first, sum, o + c,
                           left < 8 * lanes ? left : 8 * lanes);
        c += 8 * lanes;
      } else if (left > lanes) {
        OwnBlockColumns<4>(p, r + 1, v + c, v_stride, rescale, first, sum, o + c, left);
        c = output.width;
      } else {
        OwnBlockColumns<1>(p, r + 1, v + c, v_stride, rescale, first, sum, o + c, left);
        c = output.width;
      }
    }
  }
}

void MergeRows(const RunningSoftmax& other, const float* other_o, bool first,
               const RunningSoftmax& softmax, const OutputRows& output) {
  const Tag d;
  for (int64_t r = 0; r < output.rows; ++r) {
    const float max = first ? other.max[r] : Larger(softmax.max[r], other.max[r]);
    const float before = first ? 0.0f : ExpOfDifference(softmax.max[r], max);
    const float factor = ExpOfDifference(other.max[r], max);
    softmax.sum[r] = (first ? 0.0f : softmax.sum[r] * before) + other.sum[r] * factor;
    softmax.max[r] = max;
    float* const o = output.o + r * output.stride;
    const float* const from = other_o + r * output.width;
    const Vec old_factor = hn::Set(d, before);
    const Vec new_factor = hn::Set(d, factor);
    for (int64_t i = 0; i < output.width; i += LaneCount()) {
      const auto mask = Rest(output.width - i);
      Vec v = hn::Mul(hn::MaskedLoad(mask, d, from + i), new_factor);
      if (!first) v = hn::MulAdd(hn::MaskedLoad(mask, d, o + i), old_factor, v);
      hn::BlendedStore(v, mask, d, o + i);
    }
  }
}

void PackScaledRows(const float* from, int64_t row_stride, int64_t rows, int64_t width, float scale,
                    float* to) {
  const Tag d;
  const Vec factor = hn::Set(d, scale);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; i += LaneCount()) {
      const auto mask = Rest(width - i);
      const Vec v = hn::Mul(hn::MaskedLoad(mask, d, from + r * row_stride + i), factor);
      hn::BlendedStore(v, mask, d, to + r * width + i);
    }
  }
}

HWY_INLINE Vec LoadElements(const float* from, hn::Mask<Tag> mask) {
  return hn::MaskedLoad(mask, Tag(), from);
}
HWY_INLINE Vec LoadElements(const uint16_t* from, hn::Mask<Tag> mask) {
  const hn::RebindToUnsigned<Tag> bits;
  const hn::Rebind<uint16_t, Tag> half;
  const auto half_mask = hn::FirstN(half, hn::CountTrue(Tag(), mask));
  const auto wide = hn::PromoteTo(bits, hn::MaskedLoad(half_mask, half, from));
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(wide));
}

template <typename Element>
HWY_INLINE void TransposedProduct(const HeadMatrix& matrix, const float* x, float scale, float* y) {
  const Tag d;
  constexpr int kVectors = 4;
  const Element* const w = static_cast<const Element*>(matrix.w);
  for (int64_t i = 0; i < matrix.width; i += kVectors * LaneCount()) {
    Vec acc[kVectors];
    hn::Mask<Tag> mask[kVectors];
    for (int n = 0; n < kVectors; ++n) {
      mask[n] = Rest(matrix.width - i - n * LaneCount());
      acc[n] = hn::Zero(d);
    }
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const Vec factor = hn::Set(d, x[row]);
      const Element* const at = w + row * matrix.width + i;
      for (int n = 0; n < kVectors; ++n) {
        acc[n] = hn::MulAdd(factor, LoadElements(at + n * LaneCount(), mask[n]), acc[n]);
      }
    }
    for (int n = 0; n < kVectors; ++n) {
      hn::BlendedStore(hn::Mul(acc[n], hn::Set(d, scale)), mask[n], d, y + i + n * LaneCount());
    }
  }
}

template <typename Element>
HWY_INLINE void DividedProduct(const HeadMatrix& matrix, const float* x, float divisor, float* y) {
  const Tag d;
  const Element* const w = static_cast<const Element*>(matrix.w);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const Element* const at = w + row * matrix.width;
    Vec acc[2] = {hn::Zero(d), hn::Zero(d)};
    for (int64_t i = 0; i < matrix.width; i += 2 * LaneCount()) {
      for (int n = 0; n < 2; ++n) {
        const int64_t from = i + n * LaneCount();
        const auto mask = Rest(matrix.width - from);
        acc[n] =
            hn::MulAdd(LoadElements(at + from, mask), hn::MaskedLoad(mask, d, x + from), acc[n]);
      }
    }
    y[row] = hn::GetLane(hn::SumOfLanes(d, hn::Add(acc[0], acc[1]))) / divisor;
  }
}

void TransposedProductAny(const HeadMatrix& matrix, const float* x, float scale, float* y) {
  if (matrix.dtype == DType::kBF16) return TransposedProduct<uint16_t>(matrix, x, scale, y);
  TransposedProduct<float>(matrix, x, scale, y);
}

void DividedProductAny(const HeadMatrix& matrix, const float* x, float divisor, float* y) {
  if (matrix.dtype == DType::kBF16) return DividedProduct<uint16_t>(matrix, x, divisor, y);
  DividedProduct<float>(matrix, x, divisor, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(AddTileRows);
HWY_EXPORT(AddProductRows);
HWY_EXPORT(FinishRows);
HWY_EXPORT(MergeRows);
HWY_EXPORT(PackScaledRows);
HWY_EXPORT(TransposedProductAny);
HWY_EXPORT(DividedProductAny);

void AddTile(const ScoreTile& tile, bool first, const RunningSoftmax& softmax) {
  HWY_DYNAMIC_DISPATCH(AddTileRows)(tile, first, softmax);
}

void AddProduct(const float* product, int64_t product_stride, bool first, const float* rescale,
                const OutputRows& output) {
  HWY_DYNAMIC_DISPATCH(AddProductRows)(product, product_stride, first, rescale, output);
}

void FinishWithOwnBlock(const ScoreTile& probabilities, const float* v, int64_t v_stride,
                        bool first, const RunningSoftmax& softmax, const OutputRows& output) {
  HWY_DYNAMIC_DISPATCH(FinishRows)(probabilities, v, v_stride, first, softmax, output);
}

void MergePart(const RunningSoftmax& other, const float* other_o, bool first,
               const RunningSoftmax& softmax, const OutputRows& output) {
  HWY_DYNAMIC_DISPATCH(MergeRows)(other, other_o, first, softmax, output);
}

void PackScaled(const float* from, int64_t row_stride, int64_t rows, int64_t width, float scale,
                float* to) {
  HWY_DYNAMIC_DISPATCH(PackScaledRows)(from, row_stride, rows, width, scale, to);
}

void MultiplyTransposed(const HeadMatrix& matrix, const float* x, float scale, float* y) {
  HWY_DYNAMIC_DISPATCH(TransposedProductAny)(matrix, x, scale, y);
}

void MultiplyDivided(const HeadMatrix& matrix, const float* x, float divisor, float* y) {
  HWY_DYNAMIC_DISPATCH(DividedProductAny)(matrix, x, divisor, y);
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
