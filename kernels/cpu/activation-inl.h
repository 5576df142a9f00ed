// exp, sigmoid and SiLU on Highway vectors of floats; our own, so that bits depend on no libm.
#if defined(DELTAFILL_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_ACTIVATION_INL_H_
#undef DELTAFILL_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x <= 0, relative error < 1.5e-7; 0 below -87.33, where exp leaves the normal numbers.
// x = n ln 2 + r with |r| <= ln 2 / 2, and Taylor to degree 7 (remainder 5e-9). ln 2 is split so
// that n times its first part is exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  const hn::Rebind<int32_t, D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.62ep-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.0bfbe8p-15f), r);
  V p = hn::MulAdd(hn::Set(d, 1.0f / 5040), r, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V y = hn::Mul(p, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), y);
}

// 1 / (1 + exp(-x)), from exp(-|x|) so that nothing overflows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpOfNonPositive(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  return hn::Mul(x, Sigmoid(d, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_ACTIVATION_INL_H_
