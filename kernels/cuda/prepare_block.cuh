// The preparation of one block of one value head: everything in it that does not depend on the
// state, from raw q, k, gate and beta to a slot (slot_layout.h). Blocks are independent.
//
// Decays are products of factors <= 1 within and across 16-row sub-blocks, each cumulated from its
// own first row, so that small decays after large ones survive. Only inside a sub-block is an
// inverse decay used, and only above kLog2DecayFloor; rows past it are done pair by pair.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_BLOCK_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_BLOCK_CUH_

#include "kernels/cuda/prepare_matrices.cuh"
#include "kernels/cuda/prepare_rows.cuh"

namespace deltafill::kernels::cuda {

template <int K>
__device__ __forceinline__ void InvertRows(const PrepareGroup<K>& group, const BlockTask& task) {
  for (int row = group.warp(); row < kSubBlocks - 1; row += PrepareGroup<K>::kWarps) {
    if (row == 0) InvertRow<K, 3>(group, task);
    if (row == 1) InvertRow<K, 2>(group, task);
    if (row == 2) InvertRow<K, 1>(group, task);
  }
}

// Expects the block's rows requested. Calls, in this order: await_rows(); begin(); acquire()
// before the first write to the slot; draw() and, some time later, look_ahead(), once every thread
// has passed acquire(); and prefetch(), once the rows' space in shared memory is free again and the
// group has met after look_ahead(). On return every thread's writes to the slot are issued, not yet
// visible.
template <int K, typename AwaitRows, typename Begin, typename Acquire, typename Draw,
          typename LookAhead, typename Prefetch>
__device__ __forceinline__ void PrepareBlock(const PrepareGroup<K>& group, const BlockTask& task,
                                             const BlockScalars& scalars, AwaitRows await_rows,
                                             Begin begin, Acquire acquire, Draw draw,
                                             LookAhead look_ahead, Prefetch prefetch) {
  PrepareShared<K>& s = *group.shared;
  await_rows();
  group.Sync();
  PrepareRowFactors<K>(group, task, scalars);
  CumulatedDecay c;
  if (!IsChannelGate(group.in->gate)) group.Sync();  // row_gate
  begin();
  Cumulate<K>(group, task, scalars, c);
  acquire();
  group.Sync();
  draw();
  const OuterDecays outer = CombineDecays<K>(group, task);
  if (s.fast_rows[group.sub()] == kSubBlockRows) {
    ScaleRows<K, true>(group, task, outer, c);
  } else {
    ScaleRows<K, false>(group, task, outer, c);
  }
  if (task.slot_is_new) ClearUpperBlocks<K>(group, task);
  look_ahead();
  group.Sync();
  IntraBlockMatrices<K>(group, task);
  prefetch();
  group.Sync();
  bool exact = false;
  for (int i = 0; i < kSubBlocks; ++i) exact |= s.fast_rows[i] < kSubBlockRows;
  if (exact) {
    ExactDiagonalRows<K>(group, task);
    group.Sync();
  }
  for (int i = group.warp(); i < kSubBlocks; i += PrepareGroup<K>::kWarps) {
    InvertDiagonal<K>(group, task, i);
  }
  group.Sync();
  InvertRows<K>(group, task);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_BLOCK_CUH_
