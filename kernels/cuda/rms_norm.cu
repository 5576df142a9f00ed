#include <string>

#include "kernels/cuda/inputs.h"
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

__device__ __forceinline__ void Unpack8(const uint4& raw, float (&x)[8]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = LowBf16(words[i]);
    x[2 * i + 1] = HighBf16(words[i]);
  }
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
  uint4 raw[chunks];
  uint4 first_gate = make_uint4(0, 0, 0, 0);  // asked for before the reduction
  if (present && p.gate.rows && first < p.width) {
    first_gate =
        *reinterpret_cast<const uint4*>(p.gate.rows + row * p.gate.stride + column + first);
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const int at = first + i * lanes * 8;
    raw[i] = make_uint4(0, 0, 0, 0);
    if (!present || at >= p.width) continue;
    raw[i] = *reinterpret_cast<const uint4*>(p.x.rows + row * p.x.stride + column + at);
  }
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    float x[8];
    Unpack8(raw[i], x);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(x[j], x[j], squares);
  }
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset >>= 1) {
    squares += __shfl_xor_sync(~0u, squares, offset);
  }
  const float factor = rsqrtf(squares / static_cast<float>(p.width) + p.eps);
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
    const float4 low = *reinterpret_cast<const float4*>(p.weight + at);
    const float4 high = *reinterpret_cast<const float4*>(p.weight + at + 4);
    const float weight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[j] *= factor * weight[j];
      if (p.gate.rows) x[j] *= Reciprocal(1.0f + Exp2(-gate[j] * 1.44269504f));
    }
    *reinterpret_cast<uint4*>(p.y + row * p.y_stride + column + at) = make_uint4(
        PackBf16(x[0], x[1]), PackBf16(x[2], x[3]), PackBf16(x[4], x[5]), PackBf16(x[6], x[7]));
  }
}

template <int lanes, int chunks>
void LaunchNorm(const NormKernelParams& p, cudaStream_t stream) {
  const int64_t per_cta = kNormWarps * (32 / lanes);
  const int64_t ctas = (p.rows * p.groups + per_cta - 1) / per_cta;
  NormKernel<lanes, chunks><<<static_cast<unsigned>(ctas), kNormWarps * 32, 0, stream>>>(p);
}

// Which kernel runs depends on the width only, never on the number of rows.
void DispatchNorm(const NormKernelParams& p, cudaStream_t stream) {
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
  if (params.width < 8 || params.width % 8 != 0 || params.width > 8192) {
    return InvalidArgument("width is " + std::to_string(params.width) +
                           ", not a multiple of 8 in [8, 8192]");
  }
  if (params.groups < 1 || params.groups > 65535) {
    return InvalidArgument("groups must be in [1, 65535]");
  }
  if (params.weight == nullptr) return InvalidArgument("weight is null");
  if (params.rows < 0) return InvalidArgument("rows is negative");
  if (params.rows == 0) return {};
  const bool gated = params.gate.data != nullptr;
  if (params.x.dtype != DType::kBF16 || params.y.dtype != DType::kBF16 ||
      (gated && params.gate.dtype != DType::kBF16)) {
    return {StatusCode::kUnsupported, "x, gate and y: the CUDA backend takes bf16 rows"};
  }
  if (!IsVectorized(params.x.data, params.x.row_stride) ||
      !IsVectorized(params.y.data, params.y.row_stride) ||
      (gated && !IsVectorized(params.gate.data, params.gate.row_stride)) ||
      reinterpret_cast<uintptr_t>(params.weight) % 16 != 0) {
    return InvalidArgument("x, gate, y and weight must be aligned to 16 bytes");
  }
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
  DispatchNorm(p, stream);
  return FromCuda(cudaGetLastError(), "rms norm");
}

}  // namespace deltafill::kernels::cuda
