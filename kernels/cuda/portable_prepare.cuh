// The preparation as a kernel of its own: one group a CTA, which walks over the wave's blocks.
#ifndef DELTAFILL_KERNELS_CUDA_PORTABLE_PREPARE_CUH_
#define DELTAFILL_KERNELS_CUDA_PORTABLE_PREPARE_CUH_

#include "kernels/cuda/portable_kernels.h"
#include "kernels/cuda/prepare_block.cuh"

namespace deltafill::kernels::cuda {

// False where the item's sequence has no such block.
template <int K>
__device__ __forceinline__ bool TaskAt(const PortablePrepareParams& p, int64_t index,
                                       BlockTask& task) {
  const int64_t item = p.wave.first_item + index % p.wave.items;
  const int64_t block = p.wave.first_block + index / p.wave.items;
  const SequenceSpan& sequence = p.sequences[item / p.value_heads];
  const int64_t start = block * kBlockRows;
  if (start >= sequence.rows) return false;
  task.first_row = sequence.first_row + start;
  task.valid_rows = static_cast<int>(min(sequence.rows - start, int64_t{kBlockRows}));
  task.value_head = static_cast<int>(item % p.value_heads);
  task.slot = p.slots + index * SlotLayout<K>::kBytes;
  task.exact_rows = p.exact_rows + static_cast<int64_t>(blockIdx.x) * 3 * kBlockRows * K;
  return true;
}

template <int K>
__global__ void __launch_bounds__(kGroupThreads<K>, K == 128 ? 2 : 4)
    PortablePrepareKernel(const __grid_constant__ PortablePrepareParams p) {
  extern __shared__ __align__(16) uint8_t shared_bytes[];
  PrepareGroup<K> group{reinterpret_cast<PrepareShared<K>*>(shared_bytes), &p.in,
                        static_cast<int>(threadIdx.x), 1};
  const int64_t tasks = p.wave.items * p.wave.blocks;
  int64_t index = blockIdx.x;
  BlockTask task;
  auto next = [&] {
    while (index < tasks && !TaskAt<K>(p, index, task)) index += gridDim.x;
    if (index < tasks) LoadBlockRows<K>(group, task);
  };
  if (group.thread < kSubBlocks) group.shared->fast_rows[group.thread] = kSubBlockRows;
  next();
  while (index < tasks) {
    const BlockTask current = task;
    index += gridDim.x;
    // Addresses are to be computed anew for each block: kept over the loop, they would spill.
    asm volatile("" : "+r"(group.thread));
    PrepareBlock<K>(
        group, current,
        [&] {
          WaitCopies<0>();
          group.Sync();
        },
        [] {}, [] {}, [] {}, [] {}, next);
  }
}

template <int K>
cudaError_t LaunchPortablePrepare(const PortablePrepareParams& params, int ctas,
                                  cudaStream_t stream) {
  constexpr int kBytes = sizeof(PrepareShared<K>);
  cudaError_t error = cudaFuncSetAttribute(PortablePrepareKernel<K>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  PortablePrepareKernel<K><<<ctas, kGroupThreads<K>, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PORTABLE_PREPARE_CUH_
