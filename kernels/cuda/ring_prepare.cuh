// The preparing role of the ring kernel.
#ifndef DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_
#define DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_

#include "kernels/cuda/prepare_block.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/used_once.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

struct RingTask {
  BlockTask block;
  int64_t step = 0;
  int stream = 0;
  int next_stream = 0;  // which the group draws from next
  bool exists = false;
  bool by_engine = false;    // its rows come by the copy engine
  uint32_t rows_parity = 0;  // of that copy
};

// Which streams a group serves: one (stride 0), or every stride-th in turn from the first on.
struct RingTurn {
  int stream = 0;
  int stride = 0;
};

// A CTA's copy of what tickets are looked up in, where every stream is one item.
struct RingTable {
  static constexpr int kStreams = 40;
  struct Item {
    int64_t first_row;
    int32_t rows;
    int32_t value_head;
  };
  Item items[kStreams];

  static __device__ __forceinline__ bool Fits(const RingParams& p) {
    return p.item_count == p.stream_count && p.stream_count <= kStreams;
  }
  __device__ __forceinline__ void Fill(const RingParams& p, int thread) {
    if (thread >= p.stream_count) return;
    const RingItem item = p.items[p.streams[thread].first_item];
    items[thread] = {item.first_row, item.rows, item.value_head};
  }
};

// The item of a stream that owns a step.
__device__ __forceinline__ RingItem ItemAt(const RingItem* items, const RingStream& stream,
                                           int64_t step) {
  int64_t low = stream.first_item, high = low + stream.items - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (items[middle].first_step <= step) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return items[low];
}

// The task of a stream's step, which exists.
__device__ __forceinline__ void DescribeTask(const RingParams& p, const RingTable& table, int group,
                                             RingTask& task) {
  RingTable::Item item;
  int64_t start = task.step;
  if (RingTable::Fits(p)) {
    item = table.items[task.stream];
  } else {
    const RingItem found = ItemAt(p.items, p.streams[task.stream], task.step);
    item = {found.first_row, found.rows, found.value_head};
    start -= found.first_step;
  }
  start *= kBlockRows;
  task.block.first_row = item.first_row + start;
  task.block.valid_rows = static_cast<int>(min(item.rows - start, int64_t{kBlockRows}));
  task.block.value_head = item.value_head;
  const int64_t slot = static_cast<int64_t>(task.stream) * p.ring_slots + task.step % p.ring_slots;
  task.block.slot = p.slots + slot * SlotLayout<128>::kBytes;
  task.block.slot_is_new = task.step < p.ring_slots;
  task.block.exact_rows = p.exact_rows + static_cast<int64_t>(group) * 3 * kBlockRows * 128;
}

// How many steps the slowest of a stream's chains has read.
__device__ __forceinline__ uint32_t StepsConsumed(const RingParams& p, int stream) {
  uint32_t least = ~0u;
#pragma unroll
  for (int slice = 0; slice < kRingSlices; ++slice) {
    least = min(least, LoadRelaxed(&p.flags[stream].consumed[slice]));
  }
  return least;
}

__device__ __forceinline__ void FenceGpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// After a fence.
__device__ __forceinline__ void Publish(const RingParams& p, const RingTask& done) {
  StoreRelaxed(&p.flags[done.stream].ready[done.step % p.ring_slots],
               static_cast<uint32_t>(done.step / p.ring_slots + 1));
}

// By one thread, once all of the group's writes to the slot of `done` (if it exists) were issued
// and before any to the task's: publishes the one, and waits until every chain has read the step
// before in the other. `consumed` is what was known. One fence mostly serves both.
__device__ __forceinline__ void ExchangeSlots(const RingParams& p, const RingTask& done,
                                              const RingTask& task, uint32_t consumed) {
  const uint32_t needed =
      task.step < p.ring_slots ? 0 : static_cast<uint32_t>(task.step - p.ring_slots + 1);
  FenceGpu();
  if (done.exists) Publish(p, done);
  if (consumed >= needed) return;
  while (StepsConsumed(p, task.stream) < needed) __nanosleep(40);
  FenceGpu();
}

// Most groups serve one stream: with others they draw the stream's steps in order, so that no
// stream waits for a step that a group holds back because of another stream. What is left of an
// even deal serves several streams in turn. Steps are drawn late, when the block before is under
// way. When its stream has no more, a group helps the next ones, if the streams' lengths differ.
__device__ __forceinline__ void TakeTask(const RingParams& p, const RingTable& table, RingTurn turn,
                                         uint32_t step, int group, RingTask& task) {
  int stream = turn.stream;
  const int streams = p.even_streams ? 1 : p.stream_count;
  for (int tried = 0; tried < streams; ++tried) {
    if (tried > 0) {
      if (++stream == p.stream_count) stream = 0;
      if (LoadRelaxed(&p.flags[stream].ticket) >= p.streams[stream].steps) continue;
      step = atomicAdd(&p.flags[stream].ticket, 1u);
    }
    task.exists = step < (p.even_streams ? p.most_steps : p.streams[stream].steps);
    if (!task.exists) continue;
    task.stream = stream;
    task.next_stream = stream + turn.stride;
    if (task.next_stream >= p.stream_count) task.next_stream -= p.stream_count;
    task.step = step;
    DescribeTask(p, table, group, task);
    return;
  }
  task.exists = false;
}

inline constexpr int kRingGroups = 2;  // that prepare in a CTA, at most

// What a group keeps in shared memory: its block, its task and the next, and what would take
// registers.
struct RingGroupShared {
  PrepareShared<128> block;
  RingTask tasks[2];
  int number;       // of the group
  int stride;       // of its turn
  uint32_t copies;  // of rows so far
  uint64_t rows_barrier;
};

// The next task, by one thread: `step` was drawn from the turn's stream.
__device__ __forceinline__ void TakeNextTask(const RingParams& p, const RingTable& table,
                                             RingGroupShared& shared, int stream, uint32_t step,
                                             RingTask& task) {
  TakeTask(p, table, {stream, shared.stride}, step, shared.number, task);
  // Rows after a sequence's end are those of the next one: zeros take their place.
  task.by_engine = p.rows.mapped && task.block.valid_rows == kBlockRows;
  if (task.exists && task.by_engine) task.rows_parity = shared.copies++ & 1;
}

// The rows of a whole block by the copy engine: two boxes a tensor, of 64 columns each.
__device__ __forceinline__ void CopyBlockRows(const PrepareGroup<128>& group, const RingRows& rows,
                                              const BlockTask& task, uint32_t barrier) {
  PrepareShared<128>& s = *group.shared;
  const bool has_f = IsChannelGate(group.in->gate);
  constexpr int kTileBytes = SlotLayout<128>::kKeyTile, kBoxColumns = 64;
  FenceAsyncShared();  // the space was read and written by ordinary accesses before
  BarrierExpect(barrier, (has_f ? 3 : 2) * kTileBytes);
  const int row = static_cast<int>(task.first_row);
  auto copy = [&](const TensorMap& map, __nv_bfloat16* tile, int head) {
    for (int half = 0; half < 2; ++half) {
      TensorCopyUsedOnce(SharedAddress(tile) + half * (kTileBytes / 2), &map,
                         head * 128 + half * kBoxColumns, row, barrier);
    }
  };
  if (has_f) copy(rows.f, s.f, task.value_head);
  copy(rows.k, s.k, task.value_head / group.in->heads_ratio);
  copy(rows.q, s.q, task.value_head / group.in->heads_ratio);
}

inline constexpr int kFinder = kGroupThreads<128> - 32;  // a thread of a group's last warp

// Of one group, before its first block.
__device__ __forceinline__ void BeginPreparing(const RingParams& p, RingGroupShared& shared,
                                               const RingTable& table, int number, RingTurn turn,
                                               int thread) {
  if (thread < kSubBlocks) shared.block.fast_rows[thread] = kSubBlockRows;
  if (thread != kFinder) return;
  BarrierInit(SharedAddress(&shared.rows_barrier), 1);
  FenceAsync();
  shared.number = number;
  shared.stride = turn.stride;
  shared.copies = 0;
  shared.tasks[1].exists = false;
  TakeNextTask(p, table, shared, turn.stream, atomicAdd(&p.flags[turn.stream].ticket, 1u),
               shared.tasks[0]);
}

__device__ __forceinline__ void RunPreparing(const RingParams& p, RingGroupShared& shared,
                                             const RingTable& table, int number, RingTurn turn,
                                             int thread, int barrier) {
  PrepareGroup<128> group{&shared.block, &p.in, thread, barrier};
  const uint32_t rows_barrier = SharedAddress(&shared.rows_barrier);
  // Where the group's last warp, which has no row of T, meets those that have.
  const int late_barrier = barrier + kRingGroups;
  constexpr int kLateThreads = (kInvertingWarps + 1) * 32;
  auto request = [&](const RingTask& task) {
    if (!task.by_engine) {
      LoadBlockRows<128>(group, task.block);
    } else if (thread == kFinder) {
      CopyBlockRows(group, p.rows, task.block, rows_barrier);
    }
  };
  BeginPreparing(p, shared, table, number, turn, thread);
  group.Sync();
  if (shared.tasks[0].exists) request(shared.tasks[0]);
  RingTask* const tasks = shared.tasks;
  auto other = [&](RingTask* task) { return task == tasks ? tasks + 1 : tasks; };
  RingTask* current = tasks;
  for (; current->exists; current = other(current)) {
    // Addresses are to be computed anew for each block: kept over the loop, they would spill.
    asm volatile("" : "+r"(group.thread));
    uint32_t answer = 0;  // of a request whose latency the block's first phase hides
    PrepareBlock<128>(
        group, current->block,
        [&] {
          if (current->by_engine) {
            BarrierWait(rows_barrier, current->rows_parity);
          } else {
            WaitCopies<0>();
            group.Sync();
          }
        },
        [&] {
          if (thread == kFinder) answer = StepsConsumed(p, current->stream);
        },
        [&] {
          if (thread < kFinder) return;
          const RingTask& done = *other(current);
          if (done.exists) GroupBarrier(late_barrier, kLateThreads);
          if (thread == kFinder) ExchangeSlots(p, done, *current, answer);
        },
        [&] {
          if (thread == kFinder) {
            answer = atomicAdd(&p.flags[current->next_stream].ticket, 1u);
          }
        },
        [&] {
          if (thread == kFinder) {
            TakeNextTask(p, table, shared, current->next_stream, answer, *other(current));
          }
        },
        [&] {
          if (other(current)->exists) request(*other(current));
        });
    if (thread < kInvertingWarps * 32) ArriveAtGroupBarrier(late_barrier, kLateThreads);
  }
  const RingTask& last = *other(current);
  if (thread < kFinder || !last.exists) return;
  GroupBarrier(late_barrier, kLateThreads);
  if (thread != kFinder) return;
  FenceGpu();
  Publish(p, last);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_
