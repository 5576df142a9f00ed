// Accesses to global memory that is used once, with a policy under which L2 evicts such lines
// first, so that what is used again stays there.
#ifndef DELTAFILL_KERNELS_CUDA_USED_ONCE_CUH_
#define DELTAFILL_KERNELS_CUDA_USED_ONCE_CUH_

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

// What createpolicy.fractional.L2::evict_first gives for all of a range: as a constant it takes no
// registers over a loop.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;

// TensorCopy of two dimensions (tensor_copy.cuh).
__device__ __forceinline__ void TensorCopyUsedOnce(uint32_t to, const TensorMap* map, int c0,
                                                   int c1, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}

// TensorStore (tensor_copy.cuh).
__device__ __forceinline__ void TensorStoreUsedOnce(const TensorMap* map, int c0, int c1,
                                                    uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], "
      "%4;" ::"l"(map),
      "r"(c0), "r"(c1), "r"(from), "l"(kEvictFirst)
      : "memory");
}

// CopyAsync16 (mma.cuh).
__device__ __forceinline__ void CopyAsync16UsedOnce(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(present ? 16 : 0), "l"(kEvictFirst)
               : "memory");
}

__device__ __forceinline__ void StoreUsedOnce(void* at, uint4 x) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(at), "r"(x.x),
               "r"(x.y), "r"(x.z), "r"(x.w), "l"(kEvictFirst)
               : "memory");
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_USED_ONCE_CUH_
