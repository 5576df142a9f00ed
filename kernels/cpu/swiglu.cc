#include "kernels/cpu/prefill_operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SwiGluRows(const SwiGluParams& params, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = params.width;
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = RowOf(params.gate, row);
    const float* up = RowOf(params.up, row);
    float* y = RowOf(params.y, row);
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      hn::StoreU(hn::Mul(Silu(d, hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, y + i);
    }
    if (i < width) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(width - i));
      const auto silu = Silu(d, hn::MaskedLoad(mask, d, gate + i));
      hn::BlendedStore(hn::Mul(silu, hn::MaskedLoad(mask, d, up + i)), mask, d, y + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(SwiGluRows);

void SwiGluOfRows(const SwiGluParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(SwiGluRows)(params, begin, end);
}

void SwiGlu(const SwiGluParams& params, ThreadTeam& team) {
  ForRowPieces(params.rows, params.width, team,
               [&](int64_t begin, int64_t end) { SwiGluOfRows(params, begin, end); });
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
