// From input rows to the decayed rows of a block: gates, the cumulative decay, L2 norms.
// Per-target header: included once for each instruction set.
#if defined(DELTAFILL_KERNELS_CPU_DELTA_RULE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_DELTA_RULE_ROWS_INL_H_
#undef DELTAFILL_KERNELS_CPU_DELTA_RULE_ROWS_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_ROWS_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_head.h"
#include "kernels/cpu/delta_rule_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {

HWY_INLINE bool IsScalarGate(GateKind gate) {
  return gate == GateKind::kScalarSoftplus || gate == GateKind::kScalarPreactivated;
}

// What gate_scale turns into the log2 decay.
HWY_INLINE Vec Gate(GateKind gate, Vec rate, Vec f, Vec dt_bias) {
  switch (gate) {
    case GateKind::kScalarSoftplus:
    case GateKind::kChannelSoftplus:
      return Softplus(hn::Add(f, dt_bias));
    case GateKind::kChannelLowerBound:
      return Sigmoid(hn::Mul(rate, hn::Add(f, dt_bias)));
    default:
      return f;
  }
}

// Fills scratch.gate with the K gates of a row with raw gates f.
HWY_NOINLINE void GateRow(const DeltaRuleShape& shape, const HeadRows& in, const float* f,
                          BlockScratch& scratch) {
  const F32 d;
  const Vec rate = hn::Set(d, in.gate_rate);
  const bool has_bias = in.dt_bias != nullptr;
  if (IsScalarGate(shape.gate)) {
    const Vec bias = hn::Set(d, has_bias ? in.dt_bias[0] : 0.0f);
    const Vec gate = Gate(shape.gate, rate, hn::Set(d, f[0]), bias);
    for (int c = 0; c < shape.key_dim; c += kLanes) hn::Store(gate, d, scratch.gate + c);
    return;
  }
  for (int c = 0; c < shape.key_dim; c += kLanes) {
    const Vec bias = has_bias ? hn::LoadU(d, in.dt_bias + c) : hn::Zero(d);
    hn::Store(Gate(shape.gate, rate, hn::LoadU(d, f + c), bias), d, scratch.gate + c);
  }
}

// Adds a row's log2 decays to the cumulative sum and splits it into whole[] and 2^fraction. In fp64
// from the gate on: a scale rounded to fp32 would be wrong in the same direction at every token.
HWY_NOINLINE void Accumulate(int key_dim, double gate_scale, BlockScratch& scratch,
                             int32_t* whole) {
  const F32 d;
  const F64 dd;
  const F32Half dh;
  const I32Half dih;
  constexpr int kHalf = hn::MaxLanes(F64());
  const auto scale = hn::Set(dd, gate_scale);
  const auto zero = hn::Zero(dd);
  const auto floor = hn::Set(dd, -128.0 * kLog2E);
  alignas(64) float fraction[kMaxDim];
  for (int c = 0; c < key_dim; c += kHalf) {
    auto step = hn::Mul(hn::PromoteTo(dd, hn::Load(dh, scratch.gate + c)), scale);
    // Written so that NaN stays.
    step = hn::IfThenElse(hn::Lt(step, floor), floor, step);
    step = hn::IfThenZeroElse(hn::Gt(step, zero), step);
    const auto sum = hn::Add(step, hn::Load(dd, scratch.cumulative + c));
    hn::Store(sum, dd, scratch.cumulative + c);
    const auto rounded = hn::Round(sum);
    hn::Store(hn::DemoteTo(dih, rounded), dih, whole + c);
    hn::Store(hn::DemoteTo(dh, hn::Sub(sum, rounded)), dh, fraction + c);
  }
  for (int c = 0; c < key_dim; c += kLanes) {
    Vec up, down;
    Exp2Both(hn::Load(d, fraction + c), up, down);
    hn::Store(up, d, scratch.up + c);
    hn::Store(down, d, scratch.down + c);
  }
}

// Starts the cumulative decay at a block's first row.
HWY_INLINE void ResetDecay(BlockScratch& scratch) {
  std::memset(scratch.cumulative, 0, sizeof(scratch.cumulative));
  for (int c = 0; c < kMaxDim; ++c) scratch.up[c] = scratch.down[c] = 1.0f;
}

// scale[i] = `factor` / |x_i|, or `factor` without the L2 norm, for `count` rows x_i.
HWY_INLINE void RowScales(const DeltaRuleShape& shape, const float* x, int64_t stride, int count,
                          float factor, float* scale) {
  const F32 d;
  const Vec factors = hn::Set(d, factor);
  const int padded = (count + kSubRows - 1) / kSubRows * kSubRows;
  if (!shape.normalize_qk) {
    for (int i = 0; i < padded; i += kLanes) hn::Store(factors, d, scale + i);
    return;
  }
  for (int i = 0; i < count; ++i) {
    const float* row = x + i * stride;
    Vec even = hn::Zero(d);
    Vec odd = hn::Zero(d);
    for (int c = 0; c < shape.key_dim; c += 2 * kLanes) {
      const Vec x0 = hn::LoadU(d, row + c);
      const Vec x1 = hn::LoadU(d, row + c + kLanes);
      even = hn::MulAdd(x0, x0, even);
      odd = hn::MulAdd(x1, x1, odd);
    }
    scale[i] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  }
  for (int i = count; i < padded; ++i) scale[i] = 0.0f;
  for (int i = 0; i < padded; i += kLanes) {
    const Vec squares = hn::Add(hn::Load(d, scale + i), hn::Set(d, 1e-6f));
    hn::Store(hn::Div(factors, hn::Sqrt(squares)), d, scale + i);
  }
}

// beta of `count` rows.
HWY_INLINE void BetaRows(const DeltaRuleShape& shape, const float* raw, int count, float* beta) {
  const F32 d;
  for (int i = 0; i < count; ++i) beta[i] = raw[i];
  for (int i = count; i % kSubRows != 0; ++i) beta[i] = 0.0f;
  if (!shape.beta_is_logit) return;
  for (int i = 0; i < count; i += kLanes) hn::Store(Sigmoid(hn::Load(d, beta + i)), d, beta + i);
}

// Row i of the block from its staged inputs: everything that does not need later rows.
HWY_NOINLINE void DecayedRow(const HeadRun& run, int i, BlockScratch& scratch) {
  const F32 d;
  const I32 di;
  const int key_dim = run.shape.key_dim;
  const float* k = scratch.raw_key[i];
  if (run.shape.gate != GateKind::kNone) {
    GateRow(run.shape, run.in, scratch.raw_gate[i], scratch);
    Accumulate(key_dim, run.in.gate_scale, scratch, scratch.whole[i]);
  } else {
    std::memset(scratch.whole[i], 0, sizeof(scratch.whole[i]));
  }
  const Vec k_scale = hn::Set(d, scratch.key_scale[i]);
  for (int c = 0; c < key_dim; c += kLanes) {
    const Vec x = hn::Mul(hn::Load(d, k + c), k_scale);
    const Vec up = hn::Mul(x, hn::Load(d, scratch.up + c));
    const Vec power = PowerOfTwo(hn::Load(di, scratch.whole[i] + c));
    hn::Store(up, d, scratch.key_up[i] + c);
    hn::Store(hn::Mul(x, hn::Load(d, scratch.down + c)), d, scratch.key_down[i] + c);
    hn::Store(hn::Mul(up, power), d, scratch.key_decayed[i] + c);
  }
  if (run.o == nullptr) return;
  const float* q = scratch.raw_query[i];
  const Vec q_scale = hn::Set(d, scratch.query_scale[i]);
  for (int c = 0; c < key_dim; c += kLanes) {
    const Vec x = hn::Mul(hn::Load(d, q + c), q_scale);
    const Vec up = hn::Mul(x, hn::Load(d, scratch.up + c));
    const Vec power = PowerOfTwo(hn::Load(di, scratch.whole[i] + c));
    hn::Store(up, d, scratch.query_up[i] + c);
    hn::Store(hn::Mul(up, power), d, scratch.query_decayed[i] + c);
  }
}

// Padding up to a whole sub-block: zero rows at the last row's decay.
HWY_INLINE void PadRow(int i, BlockScratch& scratch) {
  std::memset(scratch.key_up[i], 0, sizeof(scratch.key_up[i]));
  std::memset(scratch.query_up[i], 0, sizeof(scratch.query_up[i]));
  std::memset(scratch.key_down[i], 0, sizeof(scratch.key_down[i]));
  std::memset(scratch.key_decayed[i], 0, sizeof(scratch.key_decayed[i]));
  std::memset(scratch.query_decayed[i], 0, sizeof(scratch.query_decayed[i]));
  std::memcpy(scratch.whole[i], scratch.whole[i - 1], sizeof(scratch.whole[i]));
}

// The block's `count` rows, from their staged inputs. Returns the rows with padding.
HWY_INLINE int DecayedRows(const HeadRun& run, int count, BlockScratch& scratch) {
  ResetDecay(scratch);
  RowScales(run.shape, scratch.raw_key[0], kMaxDim, count, 1.0f, scratch.key_scale);
  if (run.o != nullptr) {
    RowScales(run.shape, scratch.raw_query[0], kMaxDim, count, run.shape.query_scale,
              scratch.query_scale);
  }
  for (int i = 0; i < count; ++i) DecayedRow(run, i, scratch);
  int padded = count;
  for (; padded % kSubRows != 0; ++padded) PadRow(padded, scratch);
  if (run.shape.write == WriteRule::kDelta) {
    BetaRows(run.shape, scratch.raw_beta, count, scratch.beta);
  }
  return padded;
}

// After the last row: the state's decay over the block, and key_down decayed to the block's end.
HWY_NOINLINE void DecayToEnd(int key_dim, int count, BlockScratch& scratch) {
  const F32 d;
  const I32 di;
  for (int c = 0; c < key_dim; c += kLanes) {
    const IntVec end = hn::Load(di, scratch.whole[count - 1] + c);
    const Vec up = hn::Load(d, scratch.up + c);
    hn::Store(hn::Mul(up, PowerOfTwo(end)), d, scratch.decay + c);
    for (int j = 0; j < count; ++j) {
      const Vec power = PowerOfTwo(hn::Sub(end, hn::Load(di, scratch.whole[j] + c)));
      const Vec down = hn::Load(d, scratch.key_down[j] + c);
      hn::Store(hn::Mul(hn::Mul(down, up), power), d, scratch.key_down[j] + c);
    }
  }
}

}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_ROWS_INL_H_
