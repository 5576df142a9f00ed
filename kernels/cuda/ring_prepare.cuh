// The preparing role of the ring kernel.
#ifndef DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_
#define DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_

#include "kernels/cuda/prepare_block.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

struct RingTask {
  BlockTask block;
  int64_t step = 0;
  int stream = 0;
};

// The item of a stream that owns a step.
__device__ __forceinline__ RingItem ItemAt(const RingParams& p, const RingStream& stream,
                                           int64_t step) {
  int64_t low = stream.first_item, high = low + stream.items - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (p.items[middle].first_step <= step) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return p.items[low];
}

__device__ __forceinline__ bool RingTaskAt(const RingParams& p, int64_t index, int group,
                                           RingTask& task) {
  task.step = index / p.stream_count;
  task.stream = static_cast<int>(index % p.stream_count);
  const RingStream stream = p.streams[task.stream];
  if (task.step >= stream.steps) return false;
  const RingItem item = ItemAt(p, stream, task.step);
  const SequenceSpan& sequence = p.chain.sequences[item.item / p.chain.value_heads];
  const int64_t start = (task.step - item.first_step) * kBlockRows;
  task.block.first_row = sequence.first_row + start;
  task.block.valid_rows = static_cast<int>(min(sequence.rows - start, int64_t{kBlockRows}));
  task.block.value_head = static_cast<int>(item.item % p.chain.value_heads);
  const int64_t slot = static_cast<int64_t>(task.stream) * p.ring_slots + task.step % p.ring_slots;
  task.block.slot = p.slots + slot * SlotLayout<128>::kBytes;
  task.block.exact_rows = p.exact_rows + static_cast<int64_t>(group) * 3 * kBlockRows * 128;
  return true;
}

// Until every chain that reads the slot has read the step before in it.
__device__ __forceinline__ void WaitForSlot(const RingParams& p, const RingTask& task) {
  if (task.step < p.ring_slots) return;
  const uint32_t needed = static_cast<uint32_t>(task.step - p.ring_slots + 1);
  for (int slice = 0; slice < p.slices; ++slice) {
    while (LoadAcquire(p.consumed + task.stream * 2 + slice) < needed) __nanosleep(40);
  }
}

__device__ __forceinline__ void RunPreparing(const RingParams& p, PrepareShared<128>* shared,
                                             int cta, int ctas) {
  const int in_cta = threadIdx.x / kGroupThreads<128>;
  const PrepareGroup<128> group{shared + in_cta, &p.in,
                                static_cast<int>(threadIdx.x % kGroupThreads<128>), in_cta + 1};
  // Groups of one CTA are far apart in the order, so that both seldom wait for the same chain.
  const int number = in_cta * ctas + cta;
  const int64_t stride = static_cast<int64_t>(ctas) * kRingGroupsPerCta;
  const int64_t tasks = p.most_steps * p.stream_count;
  auto next = [&](int64_t& index, RingTask& task) {
    while (index < tasks && !RingTaskAt(p, index, number, task)) index += stride;
    if (index < tasks) LoadBlockRows<128>(group, task.block);
  };
  int64_t index = number;
  RingTask task;
  next(index, task);
  while (index < tasks) {
    const RingTask current = task;
    index += stride;
    PrepareBlock<128>(
        group, current.block, [&] { if (group.thread == 0) WaitForSlot(p, current); },
        [&] { next(index, task); });
    FenceAsync();  // the chains read by the copy engine
    group.Sync();
    if (group.thread == 0) {
      __threadfence();
      const int64_t slot =
          static_cast<int64_t>(current.stream) * p.ring_slots + current.step % p.ring_slots;
      StoreRelease(p.ready + slot, static_cast<uint32_t>(current.step / p.ring_slots + 1));
    }
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_
