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
  int next_stream = 0;  // which the group draws from next
  bool exists = false;
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

// Until every chain has read the step before in the task's slot; `consumed` is what was known.
__device__ __forceinline__ void WaitForSlot(const RingParams& p, const RingTask& task,
                                            uint32_t consumed) {
  if (task.step < p.ring_slots) return;
  const uint32_t needed = static_cast<uint32_t>(task.step - p.ring_slots + 1);
  while (consumed < needed) {
    __nanosleep(40);
    consumed = StepsConsumed(p, task.stream);
  }
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
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

// What a group keeps in shared memory: its block, and its task and the next.
struct RingGroupShared {
  PrepareShared<128> block;
  RingTask tasks[2];
  int stride;  // of its turn
  uint64_t rows_barrier;
};

// Rows by the copy engine: one copy of 256 bytes a thread instead of twelve of 16, which would
// hold up the other users of the load and store unit.
__device__ __forceinline__ void CopyBlockRows(const PrepareGroup<128>& group, const BlockTask& task,
                                              uint32_t barrier) {
  PrepareShared<128>& s = *group.shared;
  const BlockInputs& in = *group.in;
  const bool has_f = IsChannelGate(in.gate);
  constexpr int kRowBytes = 256;
  if (group.thread == 0) BarrierExpect(barrier, (has_f ? 3 : 2) * task.valid_rows * kRowBytes);
  const int row = group.thread % kBlockRows, tensor = group.thread / kBlockRows;
  if (tensor > 2 || (tensor == 2 && !has_f)) return;
  const int64_t column =
      static_cast<int64_t>(tensor == 2 ? task.value_head : task.value_head / in.heads_ratio) * 128;
  const DeviceRows& from = tensor == 0 ? in.k : tensor == 1 ? in.q : in.f;
  __nv_bfloat16* to = (tensor == 0   ? s.k
                       : tensor == 1 ? s.q
                                     : s.f) +
                      row * PrepareShared<128>::kRowStride;
  if (row < task.valid_rows) {
    FenceAsyncShared();  // the space was read and written by ordinary accesses before
    BulkCopy(SharedAddress(to), from.rows + (task.first_row + row) * from.stride + column,
             kRowBytes, barrier);
  } else {
    for (int i = 0; i < kRowBytes / 16; ++i) {
      reinterpret_cast<uint4*>(to)[i] = make_uint4(0, 0, 0, 0);
    }
  }
}

__device__ __forceinline__ void RunPreparing(const RingParams& p, RingGroupShared& shared,
                                             const RingTable& table, int number, RingTurn turn,
                                             int thread, int barrier) {
  PrepareGroup<128> group{&shared.block, &p.in, thread, barrier};
  constexpr int kFinder = kGroupThreads<128> - 32;  // a thread of the last warp
  const uint32_t rows_barrier = SharedAddress(&shared.rows_barrier);
  const bool by_engine =
      p.in.q.vectorized && p.in.k.vectorized && (p.in.f.vectorized || !IsChannelGate(p.in.gate));
  auto request = [&](const BlockTask& block) {
    if (!by_engine) return LoadBlockRows<128>(group, block);
    CopyBlockRows(group, block, rows_barrier);
    return LoadBlockScalars<128>(group, block);
  };
  uint32_t rows_phase = 0;
  if (thread == kFinder) {
    BarrierInit(rows_barrier, 1);
    FenceAsync();
    shared.stride = turn.stride;
    TakeTask(p, table, turn, atomicAdd(&p.flags[turn.stream].ticket, 1u), number, shared.tasks[0]);
  }
  group.Sync();
  BlockScalars scalars;
  if (shared.tasks[0].exists) scalars = request(shared.tasks[0].block);
  for (int current = 0; shared.tasks[current].exists; current ^= 1) {
    const RingTask& task = shared.tasks[current];
    // Addresses are to be computed anew for each block: kept over the loop, they would spill.
    asm volatile("" : "+r"(group.thread));
    const BlockScalars current_scalars = scalars;
    uint32_t answer = 0;  // of a request whose latency the block's first phase hides
    PrepareBlock<128>(
        group, task.block, current_scalars,
        [&] {
          if (by_engine) {
            BarrierWait(rows_barrier, rows_phase);
            rows_phase ^= 1;
          } else {
            WaitCopies<0>();
          }
        },
        [&] {
          if (thread == 0) answer = StepsConsumed(p, task.stream);
        },
        [&] {
          if (thread == 0) WaitForSlot(p, task, answer);
        },
        [&] {
          if (thread == kFinder) answer = atomicAdd(&p.flags[task.next_stream].ticket, 1u);
        },
        [&] {
          if (thread != kFinder) return;
          TakeTask(p, table, {task.next_stream, shared.stride}, answer, number,
                   shared.tasks[current ^ 1]);
        },
        [&] {
          const RingTask& next = shared.tasks[current ^ 1];
          if (next.exists) scalars = request(next.block);
        });
    group.Sync();
    if (thread == 0) {
      StoreRelease(&p.flags[task.stream].ready[task.step % p.ring_slots],
                   static_cast<uint32_t>(task.step / p.ring_slots + 1));
    }
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_PREPARE_CUH_
