// First half of a block's preparation: per-row factors, decays, and the scaled rows of q and k.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_

#include "kernels/cuda/prepare_shared.cuh"

namespace deltafill::kernels::cuda {

// Sums of squares of 16 rows: the diagonal of their Gram matrix, by the matrix unit.
template <int K>
__device__ __forceinline__ void RowNorms(const PrepareGroup<K>& group, const __nv_bfloat16* rows,
                                         float scale, float* factors) {
  const int lane = group.lane();
  float low[4] = {}, high[4] = {};
  const LaneOffset<K> address(SharedAddress(rows), lane & 15, (lane >> 4) * 8);
#pragma unroll
  for (int step = 0; step < K / 16; ++step) {
    uint32_t a[4];
    LoadMatrix4(address[step], a);
    MmaBf16(low, a, a[0], a[2]);
    MmaBf16(high, a, a[1], a[3]);
  }
  const int row = lane >> 2;
  if ((lane & 3) == row >> 1) {
    const float first = row & 1 ? low[1] : low[0], second = row & 1 ? high[3] : high[2];
    factors[row * 2] = scale * rsqrtf(first + 1e-6f);
    factors[(row + 8) * 2] = scale * rsqrtf(second + 1e-6f);
  }
}

__device__ __forceinline__ float RowGate(GateKind gate, const BlockScalars& scalars) {
  const float f = __bfloat162float(scalars.row_gate);
  if (gate == GateKind::kScalarSoftplus) {
    return Log2Decay<GateForm::kSoftplus>(
        f, MakeGateConstants(GateForm::kSoftplus, scalars.a_log, scalars.bias.x, 0.0f));
  }
  return f * kLog2E;
}

// beta, scalar gates and the L2 norms' factors.
template <int K>
__device__ __forceinline__ void PrepareRowFactors(const PrepareGroup<K>& group,
                                                  const BlockTask& task,
                                                  const BlockScalars& scalars) {
  PrepareShared<K>& s = *group.shared;
  const BlockInputs& in = *group.in;
  const int row = group.scalar_row();
  if (row >= 0) {
    const bool valid = row < task.valid_rows;
    float beta = in.delta ? 0.0f : 1.0f;
    if (in.delta && valid) {
      beta = __bfloat162float(scalars.beta);
      if (in.beta_is_logit) beta = Reciprocal(1.0f + Exp2(-beta * kLog2E));
    }
    s.beta[row] = beta;
    if (!IsChannelGate(in.gate)) s.row_gate[row] = valid ? RowGate(in.gate, scalars) : 0.0f;
    if (!in.normalize_qk) s.factor[row] = make_float2(1.0f, in.query_scale);
  }
  if (!in.normalize_qk) return;
  float* factors = &s.factor[0].x;
  constexpr int kWarps = PrepareGroup<K>::kWarps;
  constexpr int kFirst = kWarps > kSubBlocks ? kSubBlocks - 1 : 0;
  constexpr int kTiles = kWarps < kSubBlocks ? 2 * kSubBlocks / kWarps : 2;
  const int warp = group.warp() - kFirst;
  if (warp < 0 || warp * kTiles >= 2 * kSubBlocks) return;
#pragma unroll 1
  for (int tile = warp * kTiles; tile < (warp + 1) * kTiles; ++tile) {
    const int first = tile / 2 * kSubBlockRows;
    const bool query = tile % 2 == 1;
    RowNorms<K>(group, (query ? s.q : s.k) + TileOffset<K>(first, 0) / 2,
                query ? in.query_scale : 1.0f, factors + first * 2 + query);
  }
}

inline constexpr int kThreadRows = kSubBlockRows / 2;

// Log2 decays of a thread's four channels, cumulated from the sub-block's first row, over its 8
// rows and to the sub-block's end.
struct CumulatedDecay {
  float rows[kThreadRows][4];
  float end[4];
};

// Four elements at a byte offset of a tile.
__device__ __forceinline__ void Unpack4(const __nv_bfloat16* tile, uint32_t at, float (&x)[4]) {
  const uint2 pairs = *reinterpret_cast<const uint2*>(reinterpret_cast<const uint8_t*>(tile) + at);
  x[0] = LowBf16(pairs.x);
  x[1] = HighBf16(pairs.x);
  x[2] = LowBf16(pairs.y);
  x[3] = HighBf16(pairs.y);
}

__device__ __forceinline__ uint2 Pack4(const float (&x)[4]) {
  return make_uint2(PackBf16(x[0], x[1]), PackBf16(x[2], x[3]));
}

__device__ __forceinline__ void StorePacked4(__nv_bfloat16* tile, uint32_t at,
                                             const float (&x)[4]) {
  *reinterpret_cast<uint2*>(reinterpret_cast<uint8_t*>(tile) + at) = Pack4(x);
}

// Rows of an incomplete block that are not there do not decay.
template <int K, GateForm form, bool whole>
__device__ __forceinline__ void ActivateRows(const PrepareGroup<K>& group, const BlockTask& task,
                                             const BlockScalars& scalars, CumulatedDecay& c) {
  const PrepareShared<K>& s = *group.shared;
  const float* bias = &scalars.bias.x;
  const int first = group.first_row();
  const uint32_t at = TileOffset<K>(first, group.channel());
  GateConstants gate = MakeGateConstants(form, scalars.a_log, 0.0f, group.in->lower_bound);
  float offset[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    offset[i] = form == GateForm::kPreactivated ? 0.0f : bias[i] * gate.scale;
  }
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
    float f[4];
    Unpack4(s.f, RowAfter<K>(at, r), f);
    const bool valid = whole || first + r < task.valid_rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      gate.offset = offset[i];
      c.rows[r][i] = valid ? Log2Decay<form>(f[i], gate) : 0.0f;
    }
  }
}

template <int K, GateForm form>
__device__ __forceinline__ void ActivateGate(const PrepareGroup<K>& group, const BlockTask& task,
                                             const BlockScalars& scalars, CumulatedDecay& c) {
  if (task.valid_rows == kBlockRows) {
    ActivateRows<K, form, true>(group, task, scalars, c);
  } else {
    ActivateRows<K, form, false>(group, task, scalars, c);
  }
}

// Sums a thread's rows, the second half on top of the first.
__device__ __forceinline__ void SumRows(bool second_half, CumulatedDecay& c) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int r = 1; r < kThreadRows; ++r) c.rows[r][i] += c.rows[r - 1][i];
    const float other = __shfl_xor_sync(~0u, c.rows[kThreadRows - 1][i], 16);
    const float before = second_half ? other : 0.0f;
    const float mine = c.rows[kThreadRows - 1][i];
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) c.rows[r][i] += before;
    c.end[i] = second_half ? c.rows[kThreadRows - 1][i] : other + mine;
  }
}

template <int K>
__device__ __forceinline__ void Cumulate(const PrepareGroup<K>& group, const BlockTask& task,
                                         const BlockScalars& scalars, CumulatedDecay& c) {
  PrepareShared<K>& s = *group.shared;
  switch (group.in->gate) {
    case GateKind::kChannelSoftplus:
      ActivateGate<K, GateForm::kSoftplus>(group, task, scalars, c);
      break;
    case GateKind::kChannelLowerBound:
      ActivateGate<K, GateForm::kLowerBound>(group, task, scalars, c);
      break;
    case GateKind::kChannelPreactivated:
      ActivateGate<K, GateForm::kPreactivated>(group, task, scalars, c);
      break;
    default:
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        const float gate = s.row_gate[group.first_row() + r];
#pragma unroll
        for (int i = 0; i < 4; ++i) c.rows[r][i] = gate;
      }
  }
  SumRows(group.half() == 1, c);
  const float lowest = fminf(fminf(c.end[0], c.end[1]), fminf(c.end[2], c.end[3]));
  if (!(lowest >= kLog2DecayFloor)) {
    int fast = 0;
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      const float row = fminf(fminf(c.rows[r][0], c.rows[r][1]), fminf(c.rows[r][2], c.rows[r][3]));
      fast += row >= kLog2DecayFloor ? 1 : 0;
    }
    if (fast < kThreadRows) {
      atomicMin(&s.fast_rows[group.sub()], group.half() * kThreadRows + fast);
    }
  }
  if (group.half() == 1) {
    *reinterpret_cast<float4*>(&s.decay[group.sub()][group.channel()]) =
        make_float4(Exp2(c.end[0]), Exp2(c.end[1]), Exp2(c.end[2]), Exp2(c.end[3]));
  }
}

// Decays from the block's start to the sub-block's, and from its end to the block's end.
struct OuterDecays {
  float before[4], after[4];
};

// Also stores what the block's other products need of the sub-blocks' decays.
template <int K>
__device__ __forceinline__ OuterDecays CombineDecays(const PrepareGroup<K>& group,
                                                     const BlockTask& task) {
  PrepareShared<K>& s = *group.shared;
  const int channel = group.channel(), sub = group.sub();
  OuterDecays outer;
  float d[kSubBlocks][4];
#pragma unroll
  for (int i = 0; i < kSubBlocks; ++i) {
    const float4 decay = *reinterpret_cast<const float4*>(&s.decay[i][channel]);
    d[i][0] = decay.x, d[i][1] = decay.y, d[i][2] = decay.z, d[i][3] = decay.w;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    outer.before[j] = outer.after[j] = 1.0f;
#pragma unroll
    for (int i = 0; i < kSubBlocks; ++i) {
      if (i < sub) outer.before[j] *= d[i][j];
      if (i > sub) outer.after[j] *= d[i][j];
    }
  }
  if (group.half() == 1) return outer;
  uint2* between = reinterpret_cast<uint2*>(&s.between[sub == 3 ? 0 : sub][channel / 2]);
  if (sub == 0) {
    StoreGlobal(task.slot + SlotLayout<K>::kDecay + channel * 4,
                make_float4(d[0][0] * outer.after[0], d[0][1] * outer.after[1],
                            d[0][2] * outer.after[2], d[0][3] * outer.after[3]));
    *between = Pack4(d[1]);
  } else if (sub == 1) {
    *between = Pack4(d[2]);
  } else if (sub == 2) {
    const float both[4] = {d[1][0] * d[2][0], d[1][1] * d[2][1], d[1][2] * d[2][2],
                           d[1][3] * d[2][3]};
    *between = Pack4(both);
  }
  return outer;
}

// Scales the rows of q and k: ke, qe, kg to the slot, the operands of A and P in place. `fast`: no
// row of the sub-block passes the decay floor; otherwise c, k and q are kept for the exact rows.
// A loop over halves of a thread's rows, of which the second moves to the first's place in c: code
// that is run has to stay in the instruction cache.
template <int K, bool fast>
__device__ __forceinline__ void ScaleRows(const PrepareGroup<K>& group, const BlockTask& task,
                                          const OuterDecays& outer, CumulatedDecay& c) {
  PrepareShared<K>& s = *group.shared;
  using Slot = SlotLayout<K>;
  constexpr int kRows = kThreadRows / 2;
  const int channel = group.channel();
  int first = group.first_row();
  const float4 end4 = *reinterpret_cast<const float4*>(&s.decay[group.sub()][channel]);
  const float end[4] = {end4.x, end4.y, end4.z, end4.w};
  const bool delta = group.in->delta;
  // Slots are aligned to 1,024 bytes, so a row's swizzle is an exclusive or of address bits 4 to 6.
  uint32_t tile_at = TileOffset<K>(first, channel);
  uint64_t slot = reinterpret_cast<uint64_t>(task.slot) + tile_at;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t at = RowAfter<K>(tile_at, r);
      const float2 factor = s.factor[first + r];
      float k[4], q[4], x[4], kl[4], kr[4];
      Unpack4(s.k, at, k);
      Unpack4(s.q, at, q);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        k[i] *= factor.x;
        q[i] *= factor.y;
        const float from_start = Exp2(c.rows[r][i]), inverse = Exp2(-c.rows[r][i]);
        x[i] = k[i] * inverse;
        kl[i] = k[i] * from_start;
        kr[i] = k[i] * (fast ? end[i] * inverse : Exp2(c.end[i] - c.rows[r][i]));
        if (!fast) {
          float* exact = task.exact_rows + (first + r) * K + channel + i;
          exact[0] = c.rows[r][i];
          exact[kBlockRows * K] = k[i];
          exact[2 * kBlockRows * K] = q[i];
        }
        q[i] *= from_start;
      }
      StorePacked4(s.n, at, x);
      StorePacked4(s.k, at, kl);
      StorePacked4(s.q, at, q);
      StorePacked4(s.f, at, kr);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        kl[i] *= outer.before[i];
        q[i] *= outer.before[i];
        kr[i] *= outer.after[i];
      }
      uint8_t* tile = reinterpret_cast<uint8_t*>(RowAfter<K>(slot, r));
      // Linear attention reads nothing back.
      StoreGlobal(tile + Slot::kKe, delta ? Pack4(kl) : make_uint2(0, 0));
      StoreGlobal(tile + Slot::kQe, Pack4(q));
      StoreGlobal(tile + Slot::kKg, Pack4(kr));
    }
    first += kRows;
    tile_at = RowAfter<K>(tile_at, kRows);
    slot = RowAfter<K>(slot, kRows);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c.rows[r][i] = c.rows[r + kRows][i];
    }
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_ROWS_CUH_
