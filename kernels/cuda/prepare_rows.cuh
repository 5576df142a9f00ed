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
    factors[row] = scale / sqrtf(first + 1e-6f);
    factors[row + 8] = scale / sqrtf(second + 1e-6f);
  }
}

template <int K>
__device__ __forceinline__ float RowGate(const BlockInputs& in, const BlockTask& task, int row) {
  if (in.gate == GateKind::kNone || row >= task.valid_rows) return 0.0f;
  const int head = task.value_head;
  const float f = __bfloat162float(in.f.rows[(task.first_row + row) * in.f.stride + head]);
  if (in.gate == GateKind::kScalarSoftplus) {
    const float bias = in.dt_bias ? in.dt_bias[head] : 0.0f;
    return Log2Decay<GateForm::kSoftplus>(
        f, MakeGateConstants(GateForm::kSoftplus, in.a_log[head], bias, 0.0f));
  }
  return f * kLog2E;
}

// beta, scalar gates and the L2 norms' factors.
template <int K>
__device__ __forceinline__ void PrepareRowFactors(const PrepareGroup<K>& group,
                                                  const BlockTask& task) {
  PrepareShared<K>& s = *group.shared;
  const BlockInputs& in = *group.in;
  const int row = group.thread;
  if (row < kSubBlocks) s.fast_rows[row] = kSubBlockRows;
  if (row < kBlockRows) {
    float beta = in.delta ? 0.0f : 1.0f;
    if (in.delta && row < task.valid_rows) {
      beta = __bfloat162float(
          in.beta.rows[(task.first_row + row) * in.beta.stride + task.value_head]);
      if (in.beta_is_logit) beta = 1.0f / (1.0f + Exp2(-beta * kLog2E));
    }
    s.beta[row] = beta;
    if (!IsChannelGate(in.gate)) s.row_gate[row] = RowGate<K>(in, task, row);
    if (!in.normalize_qk) {
      s.q_factor[row] = in.query_scale;
      s.k_factor[row] = 1.0f;
    }
  }
  if (!in.normalize_qk) return;
  constexpr int kStride = PrepareShared<K>::kRowStride;
  for (int tile = group.warp(); tile < 2 * kSubBlocks; tile += PrepareGroup<K>::kWarps) {
    const int first = tile % kSubBlocks * kSubBlockRows;
    if (tile < kSubBlocks) {
      RowNorms<K>(group, s.k + first * kStride, 1.0f, s.k_factor + first);
    } else {
      RowNorms<K>(group, s.q + first * kStride, in.query_scale, s.q_factor + first);
    }
  }
}

// Cumulated log2 decays of two channels over the 16 rows of a sub-block.
struct CumulatedDecay {
  float rows[kSubBlockRows][2];
};

template <int K, GateForm form>
__device__ __forceinline__ void CumulateChannels(const PrepareGroup<K>& group,
                                                 const BlockTask& task, int sub, int channel,
                                                 CumulatedDecay& c) {
  const PrepareShared<K>& s = *group.shared;
  const BlockInputs& in = *group.in;
  GateConstants gate[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t at = static_cast<int64_t>(task.value_head) * K + channel + i;
    const bool has_bias = form != GateForm::kPreactivated && in.dt_bias != nullptr;
    gate[i] = MakeGateConstants(form, form == GateForm::kPreactivated ? 0.0f : in.a_log[task.value_head],
                                has_bias ? in.dt_bias[at] : 0.0f, in.lower_bound);
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
                                         int sub, int channel, CumulatedDecay& c) {
  PrepareShared<K>& s = *group.shared;
  switch (group.in->gate) {
    case GateKind::kChannelSoftplus:
      CumulateChannels<K, GateForm::kSoftplus>(group, task, sub, channel, c);
      break;
    case GateKind::kChannelLowerBound:
      CumulateChannels<K, GateForm::kLowerBound>(group, task, sub, channel, c);
      break;
    case GateKind::kChannelPreactivated:
      CumulateChannels<K, GateForm::kPreactivated>(group, task, sub, channel, c);
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
  int fast = 0;
#pragma unroll
  for (int r = 0; r < kSubBlockRows; ++r) {
    fast += fminf(c.rows[r][0], c.rows[r][1]) >= kLog2DecayFloor ? 1 : 0;
  }
  if (fast < kSubBlockRows) atomicMin(&s.fast_rows[sub], fast);
  *reinterpret_cast<float2*>(&s.decay[sub][channel]) =
      make_float2(Exp2(c.rows[kSubBlockRows - 1][0]), Exp2(c.rows[kSubBlockRows - 1][1]));
}

// Decays from the block's start to the sub-block's, and from its end to the block's end.
template <int K>
__device__ __forceinline__ void OuterDecays(const PrepareShared<K>& s, int sub, int channel,
                                            float (&before)[2], float (&after)[2]) {
  before[0] = before[1] = after[0] = after[1] = 1.0f;
#pragma unroll
  for (int other = 0; other < kSubBlocks; ++other) {
    const float2 decay = *reinterpret_cast<const float2*>(&s.decay[other][channel]);
    if (other < sub) before[0] *= decay.x, before[1] *= decay.y;
    if (other > sub) after[0] *= decay.x, after[1] *= decay.y;
  }
}

// Scales the rows of q and k: ke, qe, kg to the slot, the operands of A and P in place.
template <int K>
__device__ __forceinline__ void ScaleRows(const PrepareGroup<K>& group, const BlockTask& task,
                                          int sub, int channel, const CumulatedDecay& c) {
  PrepareShared<K>& s = *group.shared;
  using Slot = SlotLayout<K>;
  float before[2], after[2];
  OuterDecays<K>(s, sub, channel, before, after);
  const float2 end = *reinterpret_cast<const float2*>(&s.decay[sub][channel]);
  if (sub == 0) {
    *reinterpret_cast<float2*>(task.slot + Slot::kDecay + channel * 4) =
        make_float2(end.x * after[0], end.y * after[1]);
  }
  const bool fast = s.fast_rows[sub] == kSubBlockRows;
  const float write = group.in->delta ? 1.0f : 0.0f;  // linear attention reads nothing back
#pragma unroll
  for (int r = 0; r < kSubBlockRows; ++r) {
    const int row = sub * kSubBlockRows + r;
    const int at = row * PrepareShared<K>::kRowStride + channel;
    uint32_t* q_at = reinterpret_cast<uint32_t*>(s.q + at);
    uint32_t* k_at = reinterpret_cast<uint32_t*>(s.k + at);
    const float k_factor = s.k_factor[row], q_factor = s.q_factor[row];
    const float k[2] = {LowBf16(*k_at) * k_factor, HighBf16(*k_at) * k_factor};
    const float q[2] = {LowBf16(*q_at) * q_factor, HighBf16(*q_at) * q_factor};
    float ke[2], qe[2], kg[2], kl[2], ql[2], kr[2], kn[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float from_start = Exp2(c.rows[r][i]), inverse = Exp2(-c.rows[r][i]);
      const float to_end = fast ? (i ? end.y : end.x) * inverse
                                : Exp2(c.rows[kSubBlockRows - 1][i] - c.rows[r][i]);
      const float from_block = from_start * before[i];
      ke[i] = k[i] * (from_block * write);
      qe[i] = q[i] * from_block;
      kg[i] = k[i] * (to_end * after[i]);
      kl[i] = k[i] * from_start;
      ql[i] = q[i] * from_start;
      kr[i] = k[i] * to_end;
      kn[i] = k[i] * inverse;
    }
    *k_at = PackBf16(kl[0], kl[1]);
    *q_at = PackBf16(ql[0], ql[1]);
    *reinterpret_cast<uint32_t*>(s.f + at) = PackBf16(kr[0], kr[1]);
    *reinterpret_cast<uint32_t*>(s.n + at) = PackBf16(kn[0], kn[1]);
    uint8_t* tile = task.slot + TileOffset<K>(row, channel);
    *reinterpret_cast<uint32_t*>(tile + Slot::kKe) = PackBf16(ke[0], ke[1]);
    *reinterpret_cast<uint32_t*>(tile + Slot::kQe) = PackBf16(qe[0], qe[1]);
    *reinterpret_cast<uint32_t*>(tile + Slot::kKg) = PackBf16(kg[0], kg[1]);
    if (!fast) {
      float* exact = task.exact_rows + row * K + channel;
      *reinterpret_cast<float2*>(exact) = make_float2(c.rows[r][0], c.rows[r][1]);
      *reinterpret_cast<float2*>(exact + kBlockRows * K) = make_float2(k[0], k[1]);
      *reinterpret_cast<float2*>(exact + 2 * kBlockRows * K) = make_float2(q[0], q[1]);
    }
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_
