// SwiGLU, the embedding gather and the bias of products: bf16 rows, fp32 arithmetic, one rounding.
#include <algorithm>

#include "kernels/cuda/element_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/swiglu.cuh"

namespace deltafill::kernels::cuda {
namespace {

// One CTA a row; rows may be a million and more, so they are the grid's x.
unsigned ThreadsFor(int64_t pieces) {
  return static_cast<unsigned>(std::clamp<int64_t>((pieces + 31) / 32 * 32, 32, 256));
}

__device__ __forceinline__ uint32_t SwiGluPair(uint32_t gate, uint32_t up) {
  return PackBf16(SiluTimes(LowBf16(gate), LowBf16(up)), SiluTimes(HighBf16(gate), HighBf16(up)));
}

// A thread for 8 elements. y may be gate or up: they are read before they are written.
__global__ void SwiGluKernel(const __nv_bfloat16* gate, int64_t gate_stride,
                             const __nv_bfloat16* up, int64_t up_stride, __nv_bfloat16* y,
                             int64_t y_stride, int pieces) {
  const int64_t row = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  LetNextKernelStart();
  WaitForEarlierKernels();
  if (i >= pieces) return;
  const uint4 g = reinterpret_cast<const uint4*>(gate + row * gate_stride)[i];
  const uint4 u = reinterpret_cast<const uint4*>(up + row * up_stride)[i];
  reinterpret_cast<uint4*>(y + row * y_stride)[i] = make_uint4(
      SwiGluPair(g.x, u.x), SwiGluPair(g.y, u.y), SwiGluPair(g.z, u.z), SwiGluPair(g.w, u.w));
}

__global__ void GatherKernel(const uint4* table, const uint32_t* tokens, __nv_bfloat16* y,
                             int64_t y_stride, int pieces) {
  const int64_t row = blockIdx.x;
  const uint4* const from = table + static_cast<int64_t>(tokens[row]) * pieces;
  uint4* const to = reinterpret_cast<uint4*>(y + row * y_stride);
  for (int i = threadIdx.x; i < pieces; i += blockDim.x) to[i] = from[i];
}

__device__ __forceinline__ float AsFloat(float x) { return x; }
__device__ __forceinline__ float AsFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void Store(float* at, float x) { *at = x; }
__device__ __forceinline__ void Store(__nv_bfloat16* at, float x) { *at = __float2bfloat16(x); }

template <typename Element>
__global__ void BiasKernel(const float* bias, Element* y, int64_t y_stride, int64_t width,
                           bool accumulate) {
  Element* const row = y + static_cast<int64_t>(blockIdx.x) * y_stride;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    Store(row + i, accumulate ? AsFloat(row[i]) + bias[i] : bias[i]);
  }
}

}  // namespace

cudaError_t SwiGluRows(const SwiGluParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  const int pieces = static_cast<int>(params.width / 8);
  const unsigned threads = ThreadsFor(pieces);
  const LaunchShape shape = {
      dim3(static_cast<unsigned>(params.rows), (pieces + threads - 1) / threads), threads};
  return LaunchOverlapped(SwiGluKernel, shape, stream,
                          static_cast<const __nv_bfloat16*>(params.gate.data),
                          params.gate.row_stride, static_cast<const __nv_bfloat16*>(params.up.data),
                          params.up.row_stride, static_cast<__nv_bfloat16*>(params.y.data),
                          params.y.row_stride, pieces);
}

cudaError_t GatherRows(const void* table, int64_t width, const uint32_t* tokens, int64_t count,
                       const MutableRows& y, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int64_t pieces = width / 8;
  GatherKernel<<<static_cast<unsigned>(count), ThreadsFor(pieces), 0, stream>>>(
      static_cast<const uint4*>(table), tokens, static_cast<__nv_bfloat16*>(y.data), y.row_stride,
      static_cast<int>(pieces));
  return cudaGetLastError();
}

cudaError_t StartWithBias(const float* bias, const MutableRows& y, int64_t rows, int64_t width,
                          bool accumulate, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const unsigned grid = static_cast<unsigned>(rows), threads = ThreadsFor(width);
  if (y.dtype == DType::kF32) {
    BiasKernel<<<grid, threads, 0, stream>>>(bias, static_cast<float*>(y.data), y.row_stride, width,
                                             accumulate);
  } else {
    BiasKernel<<<grid, threads, 0, stream>>>(bias, static_cast<__nv_bfloat16*>(y.data),
                                             y.row_stride, width, accumulate);
  }
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
