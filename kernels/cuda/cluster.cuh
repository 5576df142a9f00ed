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

// All threads of all CTAs of the cluster call both, in turn. The first form orders nothing; after
// the second, what was written before it, other CTAs' shared memory included, may be read once the
// wait is over.
__device__ __forceinline__ void ArriveAtClusterRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void ArriveAtCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
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
__device__ __forceinline__ void StoreInCluster(uint32_t there, const float (&x)[4]) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(there), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_CLUSTER_CUH_
