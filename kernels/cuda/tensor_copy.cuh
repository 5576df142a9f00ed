// Copies of tensor boxes to shared memory by the copy engine (sm_90a).
#ifndef DELTAFILL_KERNELS_CUDA_TENSOR_COPY_CUH_
#define DELTAFILL_KERNELS_CUDA_TENSOR_COPY_CUH_

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Before a map in global memory is used for the first time by a thread.
__device__ __forceinline__ void FenceTensorMap(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// A box whose first element is at the coordinates, innermost first.
__device__ __forceinline__ void TensorCopy(uint32_t to, const TensorMap* map, int c0, int c1,
                                           uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void TensorCopy(uint32_t to, const TensorMap* map, int c0, int c1,
                                           int c2, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier)
      : "memory");
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_TENSOR_COPY_CUH_
