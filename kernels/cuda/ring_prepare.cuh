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
  bool exists = false;
  bool slot_free = false;  // as far as is known
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
  task.slot_free = false;
  task.block.exact_rows = p.exact_rows + static_cast<int64_t>(group) * 3 * kBlockRows * 128;
  return true;
}

// Whether every chain that reads the slot has read the step before in it.
__device__ __forceinline__ bool IsSlotFree(const RingParams& p, const RingTask& task) {
  if (task.step < p.ring_slots) return true;
  const uint32_t needed = static_cast<uint32_t>(task.step - p.ring_slots + 1);
  uint32_t least = ~0u;
#pragma unroll
  for (int slice = 0; slice < kRingSlices; ++slice) {
    least = min(least, LoadAcquire(p.consumed + task.stream * kRingSlices + slice));
  }
  return least >= needed;
}

// Takes the next block that no group has taken yet. Tickets rise, and a block waits for earlier
// steps of its own stream only, so some group can always go on.
__device__ __forceinline__ void TakeTask(const RingParams& p, int group, RingTask& task) {
  const int64_t tasks = p.most_steps * p.stream_count;
  for (;;) {
    const int64_t index = static_cast<int64_t>(atomicAdd(p.ticket, 1ull));
    task.exists = index < tasks;
    if (!task.exists || RingTaskAt(p, index, group, task)) return;
  }
}

// What a group keeps in shared memory: its block, and its task, the next and the one after.
struct RingGroupShared {
  PrepareShared<128> block;
  RingTask tasks[3];
};

__device__ __forceinline__ void RunPreparing(const RingParams& p, RingGroupShared& shared,
                                             int number, int thread, int barrier) {
  PrepareGroup<128> group{&shared.block, &p.in, thread, barrier};
  constexpr int kFinder = kGroupThreads<128> - 32;  // a thread of the last warp
  if (thread == kFinder) {
    TakeTask(p, number, shared.tasks[0]);
    TakeTask(p, number, shared.tasks[1]);
  }
  group.Sync();
  BlockScalars scalars;
  if (shared.tasks[0].exists) scalars = LoadBlockRows<128>(group, shared.tasks[0].block);
  for (int current = 0; shared.tasks[current].exists; current = (current + 1) % 3) {
    const RingTask& task = shared.tasks[current];
    // Addresses are to be computed anew for each block: kept over the loop, they would spill.
    asm volatile("" : "+r"(group.thread));
    const BlockScalars current_scalars = scalars;
    PrepareBlock<128>(
        group, task.block, current_scalars,
        [&] {
          if (thread == 0 && !task.slot_free) {
            while (!IsSlotFree(p, task)) __nanosleep(40);
          }
        },
        [&] {
          const RingTask& next = shared.tasks[(current + 1) % 3];
          if (next.exists) scalars = LoadBlockRows<128>(group, next.block);
        },
        [&] {
          if (thread != kFinder) return;
          TakeTask(p, number, shared.tasks[(current + 2) % 3]);
          RingTask& next = shared.tasks[(current + 1) % 3];
          next.slot_free = next.exists && IsSlotFree(p, next);
        });
    group.Sync();
    if (thread == 0) {
      const int64_t slot =
          static_cast<int64_t>(task.stream) * p.ring_slots + task.step % p.ring_slots;
      StoreRelease(p.ready + slot, static_cast<uint32_t>(task.step / p.ring_slots + 1));
    }
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_
