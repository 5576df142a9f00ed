// First half of a block's preparation: per-row factors, decays, and the scaled rows of q and k.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_

#include "kernels/cuda/prepare_shared.cuh"

namespace deltafill::kernels::cuda {

// Sums of squares of 16 rows: the diagonal of their Gram matrix, by the matrix unit.
template <int K>
__device__ __forceinline__ void RowNorms(const PrepareGroup<K>& group, const __nv_bfloat16* rows,
                                         float scale, float* factors) {
  constexpr int kStride = PrepareShared<K>::kRowStride;
  const int lane = group.lane();
  float low[4] = {}, high[4] = {};
  const uint32_t address = SharedAddress(rows + (lane & 15) * kStride + (lane >> 4) * 8);
#pragma unroll
  for (int step = 0; step < K / 16; ++step) {
    uint32_t a[4];
    LoadMatrix4(address + step * 32, a);
    MmaBf16(low, a, a[0], a[2]);
    MmaBf16(high, a, a[1], a[3]);
  }
  const int row = lane >> 2;
  if ((lane & 3) == row >> 1) {
    const float first = row & 1 ? low[1] : low[0], second = row & 1 ? high[3] : high[2];
    factors[row * 2] = scale / sqrtf(first + 1e-6f);
    factors[(row + 8) * 2] = scale / sqrtf(second + 1e-6f);
  }
}

__device__ __forceinline__ float RowGate(GateKind gate, const BlockScalars& scalars) {
  if (gate == GateKind::kScalarSoftplus) {
    return Log2Decay<GateForm::kSoftplus>(
        scalars.row_gate,
        MakeGateConstants(GateForm::kSoftplus, scalars.a_log, scalars.bias[0], 0.0f));
  }
  return scalars.row_gate * kLog2E;
}

// beta, scalar gates and the L2 norms' factors.
template <int K>
__device__ __forceinline__ void PrepareRowFactors(const PrepareGroup<K>& group,
                                                  const BlockTask& task,
                                                  const BlockScalars& scalars) {
  PrepareShared<K>& s = *group.shared;
  const BlockInputs& in = *group.in;
  const int row = group.thread;
  if (row < kSubBlocks) s.fast_rows[row] = kSubBlockRows;
  if (row < kBlockRows) {
    const bool valid = row < task.valid_rows;
    float beta = in.delta ? 0.0f : 1.0f;
    if (in.delta && valid) {
      beta = in.beta_is_logit ? 1.0f / (1.0f + Exp2(-scalars.beta * kLog2E)) : scalars.beta;
    }
    s.beta[row] = beta;
    if (!IsChannelGate(in.gate)) s.row_gate[row] = valid ? RowGate(in.gate, scalars) : 0.0f;
    if (!in.normalize_qk) s.factor[row] = make_float2(1.0f, in.query_scale);
  }
  if (!in.normalize_qk) return;
  constexpr int kStride = PrepareShared<K>::kRowStride;
  float* factors = &s.factor[0].x;
  for (int tile = group.warp(); tile < 2 * kSubBlocks; tile += PrepareGroup<K>::kWarps) {
    const int first = tile % kSubBlocks * kSubBlockRows;
    if (tile < kSubBlocks) {
      RowNorms<K>(group, s.k + first * kStride, 1.0f, factors + first * 2);
    } else {
      RowNorms<K>(group, s.q + first * kStride, in.query_scale, factors + first * 2 + 1);
    }
  }
}

// Cumulated log2 decays of two channels over the 16 rows of a sub-block.
struct CumulatedDecay {
  float rows[kSubBlockRows][2];
};

template <int K, GateForm form>
__device__ __forceinline__ void CumulateChannels(const PrepareGroup<K>& group,
                                                 const BlockTask& task,
                                                 const BlockScalars& scalars, int sub,
                                                 CumulatedDecay& c) {
  const PrepareShared<K>& s = *group.shared;
  const int channel = group.channel();
  GateConstants gate[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    gate[i] = MakeGateConstants(form, scalars.a_log, scalars.bias[i], group.in->lower_bound);
  }
  float sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int r = 0; r < kSubBlockRows; ++r) {
    const int row = sub * kSubBlockRows + r;
    const uint32_t f = *reinterpret_cast<const uint32_t*>(
        s.f + row * PrepareShared<K>::kRowStride + channel);
    const bool valid = row < task.valid_rows;
    sum[0] += valid ? Log2Decay<form>(LowBf16(f), gate[0]) : 0.0f;
    sum[1] += valid ? Log2Decay<form>(HighBf16(f), gate[1]) : 0.0f;
    c.rows[r][0] = sum[0];
    c.rows[r][1] = sum[1];
  }
}

template <int K>
__device__ __forceinline__ void Cumulate(const PrepareGroup<K>& group, const BlockTask& task,
                                         const BlockScalars& scalars, int sub,
                                         CumulatedDecay& c) {
  PrepareShared<K>& s = *group.shared;
  switch (group.in->gate) {
    case GateKind::kChannelSoftplus:
      CumulateChannels<K, GateForm::kSoftplus>(group, task, scalars, sub, c);
      break;
    case GateKind::kChannelLowerBound:
      CumulateChannels<K, GateForm::kLowerBound>(group, task, scalars, sub, c);
      break;
    case GateKind::kChannelPreactivated:
      CumulateChannels<K, GateForm::kPreactivated>(group, task, scalars, sub, c);
      break;
    default: {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < kSubBlockRows; ++r) {
        sum += s.row_gate[sub * kSubBlockRows + r];
        c.rows[r][0] = c.rows[r][1] = sum;
      }
    }
  }
  const float* end = c.rows[kSubBlockRows - 1];
  if (!(fminf(end[0], end[1]) >= kLog2DecayFloor)) {
    int fast = 0;
#pragma unroll
    for (int r = 0; r < kSubBlockRows; ++r) {
      fast += fminf(c.rows[r][0], c.rows[r][1]) >= kLog2DecayFloor ? 1 : 0;
    }
    atomicMin(&s.fast_rows[sub], fast);
  }
  *reinterpret_cast<float2*>(&s.decay[sub][group.channel()]) =
      make_float2(Exp2(end[0]), Exp2(end[1]));
}

// Decays from the block's start to the sub-block's, and from its end to the block's end.
struct OuterDecays {
  float before[2], after[2];
};

// Also stores what the block's other products need of the sub-blocks' decays.
template <int K>
__device__ __forceinline__ OuterDecays CombineDecays(const PrepareGroup<K>& group,
                                                     const BlockTask& task, int sub) {
  PrepareShared<K>& s = *group.shared;
  const int channel = group.channel();
  float2 d[kSubBlocks];
#pragma unroll
  for (int i = 0; i < kSubBlocks; ++i) {
    d[i] = *reinterpret_cast<const float2*>(&s.decay[i][channel]);
  }
  OuterDecays outer = {{1.0f, 1.0f}, {1.0f, 1.0f}};
#pragma unroll
  for (int i = 0; i < kSubBlocks; ++i) {
    if (i < sub) outer.before[0] *= d[i].x, outer.before[1] *= d[i].y;
    if (i > sub) outer.after[0] *= d[i].x, outer.after[1] *= d[i].y;
  }
  if (sub == 0) {
    *reinterpret_cast<float2*>(task.slot + SlotLayout<K>::kDecay + channel * 4) =
        make_float2(d[0].x * outer.after[0], d[0].y * outer.after[1]);
    s.between[0][channel / 2] = PackBf16(d[1].x, d[1].y);
  }
  if (sub == 1) s.between[1][channel / 2] = PackBf16(d[2].x, d[2].y);
  if (sub == 2) s.between[2][channel / 2] = PackBf16(d[1].x * d[2].x, d[1].y * d[2].y);
  return outer;
}

// Scales the rows of q and k: ke, qe, kg to the slot, the operands of A and P in place. `fast`: no
// row of the sub-block passes the decay floor; otherwise c, k and q are kept for the exact rows.
template <int K, bool fast>
__device__ __forceinline__ void ScaleRows(const PrepareGroup<K>& group, const BlockTask& task,
                                          int sub, const OuterDecays& outer,
                                          const CumulatedDecay& c) {
  PrepareShared<K>& s = *group.shared;
  using Slot = SlotLayout<K>;
  const int channel = group.channel(), first = sub * kSubBlockRows;
  const float2 end = *reinterpret_cast<const float2*>(&s.decay[sub][channel]);
  const bool delta = group.in->delta;
  // Slots are aligned to 1,024 bytes, so a row's swizzle is an exclusive or of address bits 4 to 6.
  const uint64_t slot = reinterpret_cast<uint64_t>(task.slot) + TileOffset<K>(first, channel);
#pragma unroll
  for (int r = 0; r < kSubBlockRows; ++r) {
    const int at = (first + r) * PrepareShared<K>::kRowStride + channel;
    uint32_t* q_at = reinterpret_cast<uint32_t*>(s.q + at);
    uint32_t* k_at = reinterpret_cast<uint32_t*>(s.k + at);
    const float2 factor = s.factor[first + r];
    const float k[2] = {LowBf16(*k_at) * factor.x, HighBf16(*k_at) * factor.x};
    const float q[2] = {LowBf16(*q_at) * factor.y, HighBf16(*q_at) * factor.y};
    float ke[2], qe[2], kg[2], kl[2], ql[2], kr[2], kn[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float from_start = Exp2(c.rows[r][i]), inverse = Exp2(-c.rows[r][i]);
      const float to_end = fast ? (i ? end.y : end.x) * inverse
                                : Exp2(c.rows[kSubBlockRows - 1][i] - c.rows[r][i]);
      kl[i] = k[i] * from_start;
      ql[i] = q[i] * from_start;
      kr[i] = k[i] * to_end;
      kn[i] = k[i] * inverse;
      ke[i] = kl[i] * outer.before[i];
      qe[i] = ql[i] * outer.before[i];
      kg[i] = kr[i] * outer.after[i];
    }
    *k_at = PackBf16(kl[0], kl[1]);
    *q_at = PackBf16(ql[0], ql[1]);
    *reinterpret_cast<uint32_t*>(s.f + at) = PackBf16(kr[0], kr[1]);
    *reinterpret_cast<uint32_t*>(s.n + at) = PackBf16(kn[0], kn[1]);
    uint8_t* tile = reinterpret_cast<uint8_t*>(slot ^ (TileOffset<K>(r, 0) & 0x70)) +
                    (TileOffset<K>(r, 0) & ~0x70);
    // Linear attention reads nothing back.
    *reinterpret_cast<uint32_t*>(tile + Slot::kKe) = delta ? PackBf16(ke[0], ke[1]) : 0;
    *reinterpret_cast<uint32_t*>(tile + Slot::kQe) = PackBf16(qe[0], qe[1]);
    *reinterpret_cast<uint32_t*>(tile + Slot::kKg) = PackBf16(kg[0], kg[1]);
    if (!fast) {
      float* exact = task.exact_rows + (first + r) * K + channel;
      *reinterpret_cast<float2*>(exact) = make_float2(c.rows[r][0], c.rows[r][1]);
      *reinterpret_cast<float2*>(exact + kBlockRows * K) = make_float2(k[0], k[1]);
      *reinterpret_cast<float2*>(exact + 2 * kBlockRows * K) = make_float2(q[0], q[1]);
    }
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_
