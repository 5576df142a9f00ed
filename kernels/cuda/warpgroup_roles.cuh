// CTAs of three warpgroups: a thread of the last has the copy engine bring tiles in, the others
// multiply them and take over its registers (sm_90a).
#ifndef DELTAFILL_KERNELS_CUDA_WARPGROUP_ROLES_CUH_
#define DELTAFILL_KERNELS_CUDA_WARPGROUP_ROLES_CUH_

#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kRolesThreads = 384;

// All threads of the CTA call it: copy() is called by one, multiply(warpgroup, warp in it, lane) by
// all of the first two warpgroups.
template <int multiply_registers, int copy_registers, typename Copy, typename Multiply>
__device__ __forceinline__ void RunRoles(const Copy& copy, const Multiply& multiply) {
  static_assert(2 * multiply_registers + copy_registers <= 504);  // 3 x 168, as launched
  const int warpgroup = WarpgroupIndex();
  if (warpgroup == 2) {
    ShrinkRegisters<copy_registers>();
    if (threadIdx.x == 256) copy();
  } else {
    GrowRegisters<multiply_registers>();
    const int warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
    multiply(warpgroup, warp, lane);
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_WARPGROUP_ROLES_CUH_
