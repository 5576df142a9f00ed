#include "kernels/cuda/latent.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// A CTA a row. Which thread sums what depends on the rank alone.
__global__ void __launch_bounds__(kThreads)
    AppendKernel(const __grid_constant__ LatentAppendKernelParams p) {
  __shared__ float warp_sums[kThreads / 32];
  const int64_t row = p.runs[0].first_row + blockIdx.x;
  int run = p.run_count - 1;
  while (p.runs[run].first_row > row) --run;
  const __nv_bfloat16* const from = p.x + row * p.x_stride;
  __nv_bfloat16* const to = p.runs[run].to + (row - p.runs[run].first_row) * (p.rank + p.rope_dim);
  float squares = 0.0f;
  for (int i = threadIdx.x; i < p.rank; i += kThreads) {
    const float x = __bfloat162float(from[i]);
    squares = fmaf(x, x, squares);
  }
  for (int offset = 16; offset > 0; offset >>= 1) {
    squares += __shfl_xor_sync(~0u, squares, offset);
  }
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < kThreads / 32; ++i) sum += warp_sums[i];
  const float factor = rsqrtf(sum / static_cast<float>(p.rank) + p.eps);
  for (int i = threadIdx.x; i < p.rank; i += kThreads) {
    to[i] = __float2bfloat16(__bfloat162float(from[i]) * factor * p.norm_weight[i]);
  }
  for (int i = threadIdx.x; i < p.rope_dim; i += kThreads) to[p.rank + i] = from[p.rank + i];
}

}  // namespace

cudaError_t LaunchLatentAppend(const LatentAppendKernelParams& params, cudaStream_t stream) {
  if (params.run_count == 0) return cudaSuccess;
  const int64_t rows = params.end_row - params.runs[0].first_row;
  AppendKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
