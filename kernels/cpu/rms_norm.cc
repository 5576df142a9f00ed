#include <cmath>

#include "kernels/cpu/prefill_operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WideTag = hn::ScalableTag<double>;
using WideVec = hn::Vec<WideTag>;
using NarrowTag = hn::Rebind<float, WideTag>;

HWY_INLINE WideVec AddSquare(hn::Vec<NarrowTag> x, WideVec sum) {
  const WideVec wide = hn::PromoteTo(WideTag(), x);
  return hn::MulAdd(wide, wide, sum);
}

// In fp64: fp32 squares overflow from 1.8e19 on. The order depends on width alone.
HWY_INLINE double SumOfSquares(const float* x, int64_t width) {
  const NarrowTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  WideVec sums[4] = {hn::Zero(WideTag()), hn::Zero(WideTag()), hn::Zero(WideTag()),
                     hn::Zero(WideTag())};
  int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
    sums[0] = AddSquare(hn::LoadU(d, x + i), sums[0]);
    sums[1] = AddSquare(hn::LoadU(d, x + i + lanes), sums[1]);
    sums[2] = AddSquare(hn::LoadU(d, x + i + 2 * lanes), sums[2]);
    sums[3] = AddSquare(hn::LoadU(d, x + i + 3 * lanes), sums[3]);
  }
  for (; i + lanes <= width; i += lanes) sums[0] = AddSquare(hn::LoadU(d, x + i), sums[0]);
  if (i < width) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(width - i));
    sums[0] = AddSquare(hn::MaskedLoad(mask, d, x + i), sums[0]);
  }
  const WideVec sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(WideTag(), sum));
}

// gate: nullptr if not gated. y may be x.
HWY_INLINE void NormalizeGroup(const float* x, const float* weight, const float* gate, float eps,
                               int64_t width, float* y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const double mean = SumOfSquares(x, width) / static_cast<double>(width);
  // A row of zeros with eps = 0 stays zero.
  const double root = std::sqrt(mean + static_cast<double>(eps));
  const V scale = hn::Set(d, root > 0.0 ? static_cast<float>(1.0 / root) : 0.0f);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    V v = hn::Mul(hn::Mul(hn::LoadU(d, x + i), scale), hn::LoadU(d, weight + i));
    if (gate != nullptr) v = hn::Mul(v, Sigmoid(d, hn::LoadU(d, gate + i)));
    hn::StoreU(v, d, y + i);
  }
  if (i < width) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(width - i));
    V v = hn::Mul(hn::Mul(hn::MaskedLoad(mask, d, x + i), scale),
                  hn::MaskedLoad(mask, d, weight + i));
    if (gate != nullptr) v = hn::Mul(v, Sigmoid(d, hn::MaskedLoad(mask, d, gate + i)));
    hn::BlendedStore(v, mask, d, y + i);
  }
}

void RmsNormRows(const RmsNormParams& params, int64_t begin, int64_t end) {
  const bool gated = params.gate.data != nullptr;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = RowOf(params.x, row);
    const float* gate = gated ? RowOf(params.gate, row) : nullptr;
    float* y = RowOf(params.y, row);
    for (int64_t group = 0; group < params.groups; ++group) {
      const int64_t first = group * params.width;
      NormalizeGroup(x + first, params.weight, gated ? gate + first : nullptr, params.eps,
                     params.width, y + first);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(RmsNormRows);

void RmsNormOfRows(const RmsNormParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNormRows)(params, begin, end);
}

void RmsNorm(const RmsNormParams& params, ThreadTeam& team) {
  ForRowPieces(params.rows, params.groups * params.width, team,
               [&](int64_t begin, int64_t end) { RmsNormOfRows(params, begin, end); });
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
