// Elementwise functions of the delta rule: own polynomials, so that bits do not depend on a maths
// library. NaN goes in and comes out. Per-target header: included once for each instruction set.
#if defined(DELTAFILL_KERNELS_CPU_DELTA_RULE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_DELTA_RULE_MATH_INL_H_
#undef DELTAFILL_KERNELS_CPU_DELTA_RULE_MATH_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_MATH_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_head.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sixteen lanes at most: every width here is a multiple of 16.
using F32 = hn::CappedTag<float, 16>;
using I32 = hn::Rebind<int32_t, F32>;
using F64 = hn::Repartition<double, F32>;
using F32Half = hn::Half<F32>;
using I32Half = hn::Rebind<int32_t, F32Half>;
using Vec = hn::Vec<F32>;
using IntVec = hn::Vec<I32>;

inline constexpr int kLanes = hn::MaxLanes(F32());

// 2^x and 2^-x for |x| <= 1/2, within 1 ulp: cosh(x ln 2) -/+ sinh(x ln 2), Taylor to x^7.
HWY_INLINE void Exp2Both(Vec x, Vec& up, Vec& down) {
  const F32 d;
  const Vec x2 = hn::Mul(x, x);
  Vec even = hn::Set(d, 1.54035304e-4f);  // ln2^6 / 6!
  even = hn::MulAdd(even, x2, hn::Set(d, 9.6181291e-3f));
  even = hn::MulAdd(even, x2, hn::Set(d, 0.24022651f));
  even = hn::Mul(even, x2);              // cosh - 1
  Vec odd = hn::Set(d, 1.52527338e-5f);  // ln2^7 / 7!
  odd = hn::MulAdd(odd, x2, hn::Set(d, 1.3333558e-3f));
  odd = hn::MulAdd(odd, x2, hn::Set(d, 5.5504109e-2f));
  odd = hn::MulAdd(odd, x2, hn::Set(d, 0.69314718f));
  const Vec one = hn::Set(d, 1.0f);
  up = hn::Add(one, hn::MulAdd(x, odd, even));
  down = hn::Add(one, hn::NegMulAdd(x, odd, even));
}

// 2^n, exact; 0 for n < -126. n <= 127.
HWY_INLINE Vec PowerOfTwo(IntVec n) {
  const F32 d;
  const I32 di;
  const IntVec biased = hn::Max(hn::Add(n, hn::Set(di, 127)), hn::Zero(di));
  return hn::BitCast(d, hn::ShiftLeft<23>(biased));
}

// e^x for x <= 0, within 1.5 ulp; 0 below the smallest normal number.
HWY_INLINE Vec ExpOfNegative(Vec x) {
  const F32 d;
  const I32 di;
  const Vec bounded = hn::IfThenElse(hn::Lt(x, hn::Set(d, -100.0f)), hn::Set(d, -100.0f), x);
  const Vec high = hn::Set(d, 1.44269502e+0f);
  const Vec low = hn::Set(d, 1.92596299e-8f);  // log2 e - high
  const Vec whole = hn::Round(hn::Mul(bounded, high));
  const Vec fraction = hn::MulAdd(bounded, low, hn::MulSub(bounded, high, whole));
  Vec up, down;
  Exp2Both(fraction, up, down);
  return hn::Mul(up, PowerOfTwo(hn::ConvertTo(di, whole)));
}

HWY_INLINE Vec Sigmoid(Vec x) {
  const F32 d;
  const Vec one = hn::Set(d, 1.0f);
  const Vec e = ExpOfNegative(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

// log(1 + y) for y in [0, 1], within 2 ulp also near 0: 2 atanh(y / (2 + y)), Taylor to s^15.
HWY_INLINE Vec Log1pOfUnit(Vec y) {
  const F32 d;
  const Vec s = hn::Div(y, hn::Add(y, hn::Set(d, 2.0f)));
  const Vec s2 = hn::Mul(s, s);  // <= 1/9
  Vec series = hn::Set(d, 2.0f / 15);
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 13));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 11));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 9));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 7));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 5));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 3));
  return hn::MulAdd(hn::Mul(s, s2), series, hn::Add(s, s));
}

HWY_INLINE Vec Softplus(Vec x) {
  const F32 d;
  const Vec tail = Log1pOfUnit(ExpOfNegative(hn::Neg(hn::Abs(x))));
  return hn::Add(hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x), tail);
}

}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_MATH_INL_H_
