// Clusters of CTAs: cards of compute capability 9.0.
#ifndef DELTAFILL_KERNELS_CUDA_CLUSTER_CUH_
#define DELTAFILL_KERNELS_CUDA_CLUSTER_CUH_

#include <cstdint>

namespace deltafill::kernels::cuda {

__device__ __forceinline__ int ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all CTAs of the cluster arrive, and those that go on wait: then all CTAs have
// started. Orders nothing but barriers' initialisation.
__device__ __forceinline__ void ArriveAtClusterRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void WaitForCluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where `at` of this CTA's shared memory lies in that of CTA `rank`.
__device__ __forceinline__ uint32_t AddressInCluster(uint32_t at, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}
// 16 bytes to another CTA's shared memory, counted there by an mbarrier that expects them: no
// thread waits for its stores, which a release for the cluster would (MEMBAR.ALL.GPU).
__device__ __forceinline__ void StoreInClusterAsync(uint32_t there, float x, float y, float z,
                                                    float w, uint32_t barrier_there) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::
          "r"(there),
      "f"(x), "f"(y), "f"(z), "f"(w), "r"(barrier_there)
      : "memory");
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_CLUSTER_CUH_
