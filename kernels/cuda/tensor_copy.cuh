// Copies of tensor boxes to shared memory by the copy engine, and clusters of
// CTAs (sm_90a).
#ifndef DELTAFILL_KERNELS_CUDA_TENSOR_COPY_CUH_
#define DELTAFILL_KERNELS_CUDA_TENSOR_COPY_CUH_

#include <cstdint>

#include "kernels/cuda/cluster.cuh"
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
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::"
      "complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void TensorCopy(uint32_t to, const TensorMap* map, int c0, int c1,
                                           int c2, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::"
      "complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void TensorCopy(uint32_t to, const TensorMap* map, int c0, int c1,
                                           int c2, int c3, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::"
      "complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier)
      : "memory");
}

// From shared memory; what lies outside the tensor is left out. A commit makes a group of a
// thread's stores so far.
__device__ __forceinline__ void TensorStore(const TensorMap* map, int c0, int c1, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(c0), "r"(c1), "r"(from)
      : "memory");
}
__device__ __forceinline__ void CommitTensorStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last `pending` groups have read their shared memory, or all have been done.
template <int pending>
__device__ __forceinline__ void WaitForTensorReads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ void WaitForTensorStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// To the same place in each CTA whose bit is in `ctas`, and each one's own
// barrier.
__device__ __forceinline__ void TensorCopyToAll(uint32_t to, const TensorMap* map, int c0, int c1,
                                                uint32_t barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::"
      "complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier), "h"(ctas)
      : "memory");
}

// Of all threads of the cluster; what was written to shared memory before it is
// seen after it.
__device__ __forceinline__ void ClusterSync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Arrives at the barrier that a CTA of the cluster has at the same shared
// address. Says only that products have read what they were to read: a release
// for the cluster would wait for all stores to global memory, each time.
__device__ __forceinline__ void BarrierArriveAt(uint32_t barrier, uint32_t cta) {
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
      "r"(cta)
      : "memory");
}

// A word in another CTA's shared memory, and polling one's own.
__device__ __forceinline__ void StoreAt(uint32_t address, uint32_t cta, uint64_t value) {
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.relaxed.cluster.shared::cluster.u64 [there], %2;}" ::"r"(address),
      "r"(cta), "l"(value)
      : "memory");
}
__device__ __forceinline__ uint64_t LoadPolled(uint32_t address) {
  uint64_t value;
  asm volatile("ld.relaxed.cluster.shared::cta.u64 %0, [%1];"
               : "=l"(value)
               : "r"(address)
               : "memory");
  return value;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_TENSOR_COPY_CUH_
