#include "kernels/cpu/panel.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/panel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<uint16_t, BitsTag>;

HWY_INLINE hn::Vec<HalfTag> RoundToBf16(hn::Vec<FloatTag> x) {
  const BitsTag d;
  const auto bits = hn::BitCast(d, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(d, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fffu))));
  const auto quiet = hn::Or(upper, hn::Set(d, 0x40u));
  const auto is_nan = hn::RebindMask(d, hn::IsNaN(x));
  return hn::TruncateTo(HalfTag(), hn::IfThenElse(is_nan, quiet, rounded));
}

void RoundRow(const float* x, int64_t width, uint16_t* out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(RoundToBf16(hn::LoadU(d, x + i)), HalfTag(), out + i);
  }
  if (i < width) {
    const size_t rest = static_cast<size_t>(width - i);
    const auto v = RoundToBf16(hn::MaskedLoad(hn::FirstN(d, rest), d, x + i));
    hn::BlendedStore(v, hn::FirstN(HalfTag(), rest), HalfTag(), out + i);
  }
}

void AddRow(const float* product, int64_t width, const float* bias, bool accumulate, float* y) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    auto v = hn::LoadU(d, product + i);
    if (bias != nullptr) v = hn::Add(v, hn::LoadU(d, bias + i));
    if (accumulate) v = hn::Add(v, hn::LoadU(d, y + i));
    hn::StoreU(v, d, y + i);
  }
  if (i < width) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(width - i));
    auto v = hn::MaskedLoad(mask, d, product + i);
    if (bias != nullptr) v = hn::Add(v, hn::MaskedLoad(mask, d, bias + i));
    if (accumulate) v = hn::Add(v, hn::MaskedLoad(mask, d, y + i));
    hn::BlendedStore(v, mask, d, y + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(RoundRow);
HWY_EXPORT(AddRow);

void PackPanel(const float* x, int64_t row_stride, int64_t rows, int64_t width, float* panel) {
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(float);
  for (int64_t r = 0; r < rows; ++r) std::memcpy(panel + r * width, x + r * row_stride, row_bytes);
  std::memset(panel + rows * width, 0, static_cast<size_t>(kBlockTokens - rows) * row_bytes);
}

void PackPanelBf16(const float* x, int64_t row_stride, int64_t rows, int64_t width,
                   uint16_t* panel) {
  for (int64_t r = 0; r < rows; ++r) {
    HWY_DYNAMIC_DISPATCH(RoundRow)(x + r * row_stride, width, panel + r * width);
  }
  std::memset(panel + rows * width, 0,
              static_cast<size_t>((kBlockTokens - rows) * width) * sizeof(uint16_t));
}

void StorePanel(const float* product, int64_t product_stride, int64_t rows, int64_t width,
                const float* bias, bool accumulate, float* y, int64_t row_stride) {
  const auto add_row = HWY_DYNAMIC_DISPATCH(AddRow);
  for (int64_t r = 0; r < rows; ++r) {
    add_row(product + r * product_stride, width, bias, accumulate, y + r * row_stride);
  }
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
