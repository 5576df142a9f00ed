// The one-token step of one value head, in place on a [V, K] state.
// Per-target header: included once for each instruction set.
#if defined(DELTAFILL_KERNELS_CPU_DELTA_RULE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_DELTA_RULE_STEP_INL_H_
#undef DELTAFILL_KERNELS_CPU_DELTA_RULE_STEP_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_STEP_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_head.h"
#include "kernels/cpu/delta_rule_math-inl.h"
#include "kernels/cpu/delta_rule_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {

// The token's normalised key and scaled query, with the decay 2^G of its channels.
struct StepToken {
  alignas(64) float k[kMaxDim];
  alignas(64) float q[kMaxDim];
  alignas(64) float decay[kMaxDim];
  float key_query = 0.0f;  // k . q
  float beta = 0.0f;
};

HWY_INLINE void PrepareStep(const HeadStep& step, BlockScratch& scratch, StepToken& token) {
  const F32 d;
  const I32 di;
  const DeltaRuleShape& shape = step.shape;
  ResetDecay(scratch);
  if (shape.gate != GateKind::kNone) {
    GateRow(shape, step.in, step.in.f, scratch);
    Accumulate(shape.key_dim, step.in.gate_scale, scratch, scratch.whole[0]);
  } else {
    std::memset(scratch.whole[0], 0, sizeof(scratch.whole[0]));
  }
  RowScales(shape, step.in.k, 0, 1, 1.0f, scratch.key_scale);
  RowScales(shape, step.in.q, 0, 1, shape.query_scale, scratch.query_scale);
  const Vec k_scale = hn::Set(d, scratch.key_scale[0]);
  const Vec q_scale = hn::Set(d, scratch.query_scale[0]);
  Vec key_query = hn::Zero(d);
  for (int c = 0; c < shape.key_dim; c += kLanes) {
    const Vec k = hn::Mul(hn::LoadU(d, step.in.k + c), k_scale);
    const Vec q = hn::Mul(hn::LoadU(d, step.in.q + c), q_scale);
    key_query = hn::MulAdd(k, q, key_query);
    hn::Store(k, d, token.k + c);
    hn::Store(q, d, token.q + c);
    const Vec power = PowerOfTwo(hn::Load(di, scratch.whole[0] + c));
    hn::Store(hn::Mul(hn::Load(d, scratch.up + c), power), d, token.decay + c);
  }
  token.key_query = hn::GetLane(hn::SumOfLanes(d, key_query));
  if (shape.write == WriteRule::kDelta) {
    BetaRows(shape, step.in.beta, 1, scratch.beta);
    token.beta = scratch.beta[0];
  }
}

// o = S'^T q + e (k . q), with S' the decayed state: both products in one pass over S.
HWY_INLINE void StepHead(const HeadStep& step, BlockScratch& scratch) {
  const F32 d;
  constexpr int kRows = 4;  // value channels at a time
  const DeltaRuleShape& shape = step.shape;
  StepToken token;
  PrepareStep(step, scratch, token);
  for (int v0 = 0; v0 < shape.value_dim; v0 += kRows) {
    float* state = step.state + static_cast<int64_t>(v0) * shape.key_dim;
    Vec predicted[kRows];
    Vec read[kRows];
    for (int r = 0; r < kRows; ++r) predicted[r] = read[r] = hn::Zero(d);
    for (int c = 0; c < shape.key_dim; c += kLanes) {
      const Vec decay = hn::Load(d, token.decay + c);
      const Vec k = hn::Load(d, token.k + c);
      const Vec q = hn::Load(d, token.q + c);
      for (int r = 0; r < kRows; ++r) {
        const Vec s = hn::Mul(hn::LoadU(d, state + r * shape.key_dim + c), decay);
        predicted[r] = hn::MulAdd(s, k, predicted[r]);
        read[r] = hn::MulAdd(s, q, read[r]);
      }
    }
    Vec written[kRows];
    for (int r = 0; r < kRows; ++r) {
      const float v = step.in.v[v0 + r];
      const float correction = shape.write == WriteRule::kDelta
                                   ? token.beta * (v - hn::GetLane(hn::SumOfLanes(d, predicted[r])))
                                   : v;
      step.o[v0 + r] = hn::GetLane(hn::SumOfLanes(d, read[r])) + correction * token.key_query;
      written[r] = hn::Set(d, correction);
    }
    for (int c = 0; c < shape.key_dim; c += kLanes) {
      const Vec decay = hn::Load(d, token.decay + c);
      const Vec k = hn::Load(d, token.k + c);
      for (int r = 0; r < kRows; ++r) {
        float* at = state + r * shape.key_dim + c;
        hn::StoreU(hn::MulAdd(written[r], k, hn::Mul(hn::LoadU(d, at), decay)), d, at);
      }
    }
  }
}

}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_STEP_INL_H_
