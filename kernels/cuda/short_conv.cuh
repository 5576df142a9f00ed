// A channel of the short convolution with SiLU, the same wherever it is computed.
#ifndef DELTAFILL_KERNELS_CUDA_SHORT_CONV_CUH_
#define DELTAFILL_KERNELS_CUDA_SHORT_CONV_CUH_

#include "kernels/cuda/log2e.h"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {

__device__ __forceinline__ float Silu(float x) { return x * Reciprocal(1.0f + Exp2(-x * kLog2E)); }

// Weights and rows oldest first.
__device__ __forceinline__ float ConvolvedSilu(const float4& weight, float x0, float x1, float x2,
                                               float x3) {
  float sum = weight.x * x0;
  sum = fmaf(weight.y, x1, sum);
  sum = fmaf(weight.z, x2, sum);
  return Silu(fmaf(weight.w, x3, sum));
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_SHORT_CONV_CUH_
