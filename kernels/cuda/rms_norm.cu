#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/log2e.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/row_operators.h"

namespace deltafill::kernels::cuda {
namespace {

struct NormKernelParams {
  DeviceRows x, gate;
  const float* weight = nullptr;
  __nv_bfloat16* y = nullptr;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int groups = 1;
  int width = 0;
  float eps = 0.0f;
};

constexpr int kNormWarps = 8;

__device__ __forceinline__ float SumSquares(const uint4& raw) {
  float x[8], sum = 0.0f;
  Unpack8(raw, x);
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(x[j], x[j], sum);
  return sum;
}

// What a group's channels are multiplied by; `squares` are a lane's own sum, over its pieces in
// their order.
template <int lanes>
__device__ __forceinline__ float FactorOf(const NormKernelParams& p, float squares) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset >>= 1) {
    squares += __shfl_xor_sync(~0u, squares, offset);
  }
  return rsqrtf(squares / static_cast<float>(p.width) + p.eps);
}

__device__ __forceinline__ void Scale8(const float* weight, float factor, float (&x)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(weight);
  const float4 high = *reinterpret_cast<const float4*>(weight + 4);
  x[0] *= factor * low.x, x[1] *= factor * low.y, x[2] *= factor * low.z, x[3] *= factor * low.w;
  x[4] *= factor * high.x, x[5] *= factor * high.y, x[6] *= factor * high.z,
      x[7] *= factor * high.w;
}

// `lanes` lanes a group of channels, `chunks` pieces of 8 channels a lane; the last may be absent.
template <int lanes, int chunks>
__global__ void __launch_bounds__(kNormWarps * 32)
    NormKernel(const __grid_constant__ NormKernelParams p) {
  constexpr int kPerWarp = 32 / lanes;
  const int64_t group_index =
      (static_cast<int64_t>(blockIdx.x) * kNormWarps + (threadIdx.x >> 5)) * kPerWarp +
      (threadIdx.x & 31) / lanes;
  const bool present = group_index < p.rows * p.groups;
  const int64_t row = present ? group_index / p.groups : 0;
  const int64_t column = (present ? group_index % p.groups : 0) * p.width;
  const int first = (threadIdx.x & (lanes - 1)) * 8;
  LetNextKernelStart();
  WaitForEarlierKernels();
  uint4 raw[chunks];
  uint4 first_gate = make_uint4(0, 0, 0, 0);  // asked for before the reduction
  if (present && p.gate.rows && first < p.width) {
    first_gate =
        *reinterpret_cast<const uint4*>(p.gate.rows + row * p.gate.stride + column + first);
  }
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const int at = first + i * lanes * 8;
    raw[i] = make_uint4(0, 0, 0, 0);
    if (!present || at >= p.width) continue;
    raw[i] = *reinterpret_cast<const uint4*>(p.x.rows + row * p.x.stride + column + at);
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < chunks; ++i) squares += SumSquares(raw[i]);
  const float factor = FactorOf<lanes>(p, squares);
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const int at = first + i * lanes * 8;
    if (!present || at >= p.width) continue;
    float x[8], gate[8];
    Unpack8(raw[i], x);
    if (p.gate.rows) {
      const uint4* at_gate =
          reinterpret_cast<const uint4*>(p.gate.rows + row * p.gate.stride + column + at);
      Unpack8(i == 0 ? first_gate : *at_gate, gate);
    }
    Scale8(p.weight + at, factor, x);
    if (p.gate.rows) {
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] *= Reciprocal(1.0f + Exp2(-gate[j] * kLog2E));
    }
    *reinterpret_cast<uint4*>(p.y + row * p.y_stride + column + at) = Pack8(x);
  }
}

// Few rows, as in decoding: a CTA a group, its warps share the group's pieces. The sums have the
// order of NormKernel<32, chunks>, so the bits are the same. Not gated.
template <int chunks>
__global__ void __launch_bounds__(kNormWarps * 32)
    NormFewKernel(const __grid_constant__ NormKernelParams p) {
  constexpr int kOwn = (chunks + kNormWarps - 1) / kNormWarps;
  __shared__ float sums[kOwn * kNormWarps][32];
  const int64_t row = blockIdx.x / p.groups;
  const int64_t column = blockIdx.x % p.groups * p.width;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  LetNextKernelStart();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = ((i * kNormWarps + warp) * 32 + lane) * 8;
    if (at < p.width) PrefetchToL1(p.weight + at);
  }
  WaitForEarlierKernels();
  uint4 raw[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = ((i * kNormWarps + warp) * 32 + lane) * 8;
    raw[i] = make_uint4(0, 0, 0, 0);
    if (at < p.width) {
      raw[i] = *reinterpret_cast<const uint4*>(p.x.rows + row * p.x.stride + column + at);
    }
    sums[i * kNormWarps + warp][lane] = SumSquares(raw[i]);
  }
  __syncthreads();
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < chunks; ++i) squares += sums[i][lane];
  const float factor = FactorOf<32>(p, squares);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = ((i * kNormWarps + warp) * 32 + lane) * 8;
    if (at >= p.width) continue;
    float x[8];
    Unpack8(raw[i], x);
    Scale8(p.weight + at, factor, x);
    *reinterpret_cast<uint4*>(p.y + row * p.y_stride + column + at) = Pack8(x);
  }
}

// Up to so many groups have a CTA each.
constexpr int64_t kFewGroups = 264;

template <int lanes, int chunks>
cudaError_t LaunchNorm(const NormKernelParams& p, cudaStream_t stream) {
  if constexpr (chunks > 1) {
    if (p.rows * p.groups <= kFewGroups && p.gate.rows == nullptr) {
      return LaunchOverlapped(NormFewKernel<chunks>,
                              {static_cast<unsigned>(p.rows * p.groups), kNormWarps * 32}, stream,
                              p);
    }
  }
  const int64_t per_cta = kNormWarps * (32 / lanes);
  const int64_t ctas = (p.rows * p.groups + per_cta - 1) / per_cta;
  return LaunchOverlapped(NormKernel<lanes, chunks>, {static_cast<unsigned>(ctas), kNormWarps * 32},
                          stream, p);
}

// Which sums a row gets depends on the width only; few rows run in another kernel with the same
// order.
cudaError_t DispatchNorm(const NormKernelParams& p, cudaStream_t stream) {
  const int pieces = p.width / 8;
  if (pieces <= 4) return LaunchNorm<4, 1>(p, stream);
  if (pieces <= 8) return LaunchNorm<8, 1>(p, stream);
  if (pieces <= 16) return LaunchNorm<16, 1>(p, stream);
  if (pieces <= 32) return LaunchNorm<32, 1>(p, stream);
  if (pieces <= 64) return LaunchNorm<32, 2>(p, stream);
  if (pieces <= 128) return LaunchNorm<32, 4>(p, stream);
  if (pieces <= 256) return LaunchNorm<32, 8>(p, stream);
  if (pieces <= 512) return LaunchNorm<32, 16>(p, stream);
  return LaunchNorm<32, 32>(p, stream);
}

}  // namespace

Status RmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  if (Status s = CheckRmsNorm(params); !s.ok()) return s;
  if (params.rows == 0) return {};
  const bool gated = params.gate.data != nullptr;
  NormKernelParams p;
  p.x = MakeDeviceRows(params.x);
  if (gated) p.gate = MakeDeviceRows(params.gate);
  p.weight = params.weight;
  p.y = static_cast<__nv_bfloat16*>(params.y.data);
  p.y_stride = params.y.row_stride;
  p.rows = params.rows;
  p.groups = static_cast<int>(params.groups);
  p.width = static_cast<int>(params.width);
  p.eps = params.eps;
  return FromCuda(DispatchNorm(p, stream), "rms norm");
}

}  // namespace deltafill::kernels::cuda
