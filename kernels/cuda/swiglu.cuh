// silu(gate) * up, the same wherever it is computed.
#ifndef DELTAFILL_KERNELS_CUDA_SWIGLU_CUH_
#define DELTAFILL_KERNELS_CUDA_SWIGLU_CUH_

#include "kernels/cuda/log2e.h"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {

__device__ __forceinline__ float SiluTimes(float gate, float up) {
  return gate * Reciprocal(1.0f + Exp2(-gate * kLog2E)) * up;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_SWIGLU_CUH_
