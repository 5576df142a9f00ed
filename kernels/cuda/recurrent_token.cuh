// One token of the recurrence in fp32: a warp has some rows of a state [V, K], a lane K / 32
// neighbouring channels of each. Decoding and the segment summary share it.
#ifndef DELTAFILL_KERNELS_CUDA_RECURRENT_TOKEN_CUH_
#define DELTAFILL_KERNELS_CUDA_RECURRENT_TOKEN_CUH_

#include "kernels/cuda/device_params.h"
#include "kernels/cuda/gate.cuh"

namespace deltafill::kernels::cuda {

template <int K>
inline constexpr int kLaneChannels = K / 32;

// A head's constants for a lane's channels.
template <int K>
struct TokenGate {
  GateConstants constants[kLaneChannels<K>];

  TokenGate() = default;
  __device__ __forceinline__ TokenGate(const BlockInputs& in, int head, int lane) {
    const GateForm form = FormOf(in.gate);
    const float a_log = form == GateForm::kPreactivated ? 0.0f : in.a_log[head];
#pragma unroll
    for (int i = 0; i < kLaneChannels<K>; ++i) {
      const int64_t at = IsChannelGate(in.gate)
                             ? static_cast<int64_t>(head) * K + lane * kLaneChannels<K> + i
                             : head;
      const bool biased = form != GateForm::kPreactivated && in.dt_bias != nullptr;
      constants[i] = MakeGateConstants(form, a_log, biased ? in.dt_bias[at] : 0.0f, in.lower_bound);
    }
  }
};

template <int K>
struct Token {
  float q[kLaneChannels<K>], k[kLaneChannels<K>], decay[kLaneChannels<K>];
  float beta = 1.0f;
};

template <int K>
__device__ __forceinline__ void LoadHeadRow(const DeviceRows& from, int64_t row, int64_t column,
                                            int lane, bool normalize, float scale,
                                            float (&x)[kLaneChannels<K>]) {
  const __nv_bfloat16* at = from.rows + row * from.stride + column + lane * kLaneChannels<K>;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kLaneChannels<K>; ++i) {
    x[i] = __bfloat162float(at[i]);
    squares = fmaf(x[i], x[i], squares);
  }
  const float factor = normalize ? scale * rsqrtf(SumWarp(squares) + 1e-6f) : scale;
#pragma unroll
  for (int i = 0; i < kLaneChannels<K>; ++i) x[i] *= factor;
}

template <int K>
__device__ __forceinline__ void LoadDecay(const BlockInputs& in, const TokenGate<K>& gate,
                                          int64_t row, int head, int lane,
                                          float (&decay)[kLaneChannels<K>]) {
  const GateForm form = FormOf(in.gate);
#pragma unroll
  for (int i = 0; i < kLaneChannels<K>; ++i) {
    decay[i] = 1.0f;
    if (in.gate == GateKind::kNone) continue;
    const int64_t at = IsChannelGate(in.gate)
                           ? static_cast<int64_t>(head) * K + lane * kLaneChannels<K> + i
                           : head;
    const float f = __bfloat162float(in.f.rows[row * in.f.stride + at]);
    const float g =
        form == GateForm::kSoftplus     ? Log2Decay<GateForm::kSoftplus>(f, gate.constants[i])
        : form == GateForm::kLowerBound ? Log2Decay<GateForm::kLowerBound>(f, gate.constants[i])
                                        : Log2Decay<GateForm::kPreactivated>(f, gate.constants[i]);
    decay[i] = Exp2(g);
  }
}

__device__ __forceinline__ float LoadBeta(const BlockInputs& in, int64_t row, int head) {
  if (!in.delta) return 1.0f;
  const float beta = __bfloat162float(in.beta.rows[row * in.beta.stride + head]);
  return in.beta_is_logit ? 1.0f / (1.0f + Exp2(-beta * kLog2E)) : beta;
}

// All but q, which only reads.
template <int K>
__device__ __forceinline__ Token<K> LoadWritingToken(const BlockInputs& in,
                                                     const TokenGate<K>& gate, int64_t row,
                                                     int head, int lane) {
  Token<K> token;
  const int64_t column = static_cast<int64_t>(head / in.heads_ratio) * K;
  LoadHeadRow<K>(in.k, row, column, lane, in.normalize_qk, 1.0f, token.k);
  LoadDecay<K>(in, gate, row, head, lane, token.decay);
  token.beta = LoadBeta(in, row, head);
#pragma unroll
  for (int i = 0; i < kLaneChannels<K>; ++i) token.q[i] = 0.0f;
  return token;
}

// Adds the other half of the lanes' values to the first `half` of this half's, and so on.
template <int half, int count>
__device__ __forceinline__ void FoldLanes(float (&values)[count], int lane) {
  if constexpr (half >= 1) {
    const bool upper = lane & half;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float send = upper ? values[i] : values[i + half];
      const float keep = upper ? values[i + half] : values[i];
      values[i] = keep + __shfl_xor_sync(~0u, send, half);
    }
    FoldLanes<half / 2>(values, lane);
  }
}

// Sums values[i] over the lanes for all i at once; lane i gets the sum of values[i] (of
// values[i % count]).
template <int count>
__device__ __forceinline__ float SumTransposed(float (&values)[count], int lane) {
#pragma unroll
  for (int offset = 16; offset >= count; offset >>= 1) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] += __shfl_xor_sync(~0u, values[i], offset);
  }
  FoldLanes<count / 2>(values, lane);
  return values[0];
}

// Advances `rows` rows of the state; v is row i's value in lane i. Lane i of the first `rows`
// returns row i's output.
template <int K, int rows>
__device__ __forceinline__ float AdvanceRows(float (&s)[rows][kLaneChannels<K>],
                                             const Token<K>& token, bool delta, float v, int lane) {
  float sums[2 * rows];
  float kq = 0.0f;
#pragma unroll
  for (int i = 0; i < kLaneChannels<K>; ++i) kq = fmaf(token.k[i], token.q[i], kq);
  kq = SumWarp(kq);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    sums[r] = sums[rows + r] = 0.0f;
#pragma unroll
    for (int i = 0; i < kLaneChannels<K>; ++i) {
      s[r][i] *= token.decay[i];
      sums[r] = fmaf(s[r][i], token.k[i], sums[r]);
      sums[rows + r] = fmaf(s[r][i], token.q[i], sums[rows + r]);
    }
  }
  const float sum = SumTransposed<2 * rows>(sums, lane);
  const float read = __shfl_sync(~0u, sum, (lane + rows) & 31);
  const float e = delta ? token.beta * (v - sum) : v;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float row_e = __shfl_sync(~0u, e, r);
#pragma unroll
    for (int i = 0; i < kLaneChannels<K>; ++i) s[r][i] = fmaf(token.k[i], row_e, s[r][i]);
  }
  return fmaf(e, kq, read);
}

template <int K>
__device__ __forceinline__ void LoadStateRow(const float* row, int lane,
                                             float (&s)[kLaneChannels<K>]) {
  if constexpr (K == 128) {
    const float4 x = reinterpret_cast<const float4*>(row)[lane];
    s[0] = x.x, s[1] = x.y, s[2] = x.z, s[3] = x.w;
  } else if constexpr (K == 64) {
    const float2 x = reinterpret_cast<const float2*>(row)[lane];
    s[0] = x.x, s[1] = x.y;
  } else {
    s[0] = row[lane];
  }
}

template <int K>
__device__ __forceinline__ void StoreStateRow(float* row, int lane,
                                              const float (&s)[kLaneChannels<K>]) {
  if constexpr (K == 128) {
    reinterpret_cast<float4*>(row)[lane] = make_float4(s[0], s[1], s[2], s[3]);
  } else if constexpr (K == 64) {
    reinterpret_cast<float2*>(row)[lane] = make_float2(s[0], s[1]);
  } else {
    row[lane] = s[0];
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RECURRENT_TOKEN_CUH_
