// The preparation of one block of one value head: everything in it that does not depend on the
// state, from raw q, k, gate and beta to a slot (slot_layout.h). Blocks are independent.
//
// Decays are products of factors <= 1 within and across 16-row sub-blocks, each cumulated from its
// own first row, so that small decays after large ones survive. Only inside a sub-block is an
// inverse decay used, and only above kLog2DecayFloor; rows past it are done pair by pair.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_BLOCK_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_BLOCK_CUH_

#include <type_traits>

#include "kernels/cuda/prepare_inverse.cuh"
#include "kernels/cuda/prepare_rows.cuh"

namespace deltafill::kernels::cuda {

template <typename Call>
__device__ __forceinline__ void WithStrip(int strip, Call call) {
  if (strip == 0) call(std::integral_constant<int, 0>());
  if (strip == 1) call(std::integral_constant<int, 1>());
  if (strip == 2) call(std::integral_constant<int, 2>());
  if (strip == 3) call(std::integral_constant<int, 3>());
}

// A strip of P to the slot; or one of A, whose diagonal goes to shared memory and is inverted,
// unless `exact`.
template <int K>
__device__ __forceinline__ void ComputeStrip(const PrepareGroup<K>& group, const BlockTask& task,
                                             bool exact, bool queries, int strip,
                                             StripBelow& below) {
  float diagonal[2][4] = {};
  WithStrip(strip, [&](auto row_sub) {
    MultiplyStrip<K, row_sub.value>(group, queries, below, diagonal);
  });
  MaskDiagonal(queries, group.lane(), diagonal);
  if (queries) {
    StoreStripOfP<K>(group, task, strip, below, diagonal);
    return;
  }
  ScaleByBeta<K>(group, strip, diagonal);
  StoreSquare(group.shared->a_diagonal[strip], diagonal, group.lane());
  if (!exact) InvertDiagonal<K>(group, task, strip);
}

// The strips of P and A, dealt to the warps: a strip of A and the strip of P that makes it five
// sub-blocks are on the same quarter of a multiprocessor. A takes the place of an operand: once the
// group has met after the products, calls rows_free().
template <int K, typename RowsFree>
__device__ __forceinline__ void IntraBlockMatrices(const PrepareGroup<K>& group,
                                                   const BlockTask& task, bool exact,
                                                   RowsFree rows_free) {
  constexpr int kWarps = PrepareGroup<K>::kWarps;
  constexpr int kWarpsOfA = kWarps < kSubBlocks ? kWarps : kSubBlocks;
  constexpr int kRounds = kSubBlocks / kWarpsOfA;                // strips of A a warp
  constexpr int kRoundsOfP = kWarps > kSubBlocks ? 0 : kRounds;  // before those of A
  PrepareShared<K>& s = *group.shared;
  const int warp = group.warp();
  for (int round = 0; round < kRoundsOfP; ++round) {
    StripBelow below = {};
    ComputeStrip<K>(group, task, exact, true, kSubBlocks - 1 - warp - round * kWarpsOfA, below);
  }
  StripBelow below[kRounds] = {};
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const bool queries = warp >= kWarpsOfA;
    const int strip = queries ? 2 * kSubBlocks - 1 - warp : warp + round * kWarpsOfA;
    ComputeStrip<K>(group, task, exact, queries, strip, below[round]);
  }
  group.Sync();
  rows_free();
  if (warp >= kWarpsOfA) return;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int strip = warp + round * kWarpsOfA;
    if (!exact) KeepDiagonal<K>(group, strip);
#pragma unroll
    for (int column_sub = 0; column_sub < kSubBlocks - 1; ++column_sub) {
      if (column_sub >= strip) continue;
      float(&acc)[2][4] = below[round][column_sub];
      ScaleByBeta<K>(group, strip, acc);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        acc[i >> 2][i & 3] = __uint_as_float(ToTf32(acc[i >> 2][i & 3]));
      }
      StoreSquare(s.inverse.below[BelowIndex(strip, column_sub)], acc, group.lane());
    }
  }
}

// What the decay floor leaves open: diagonal rows pair by pair, then their inverse.
template <int K>
__device__ __forceinline__ void CorrectDiagonal(const PrepareGroup<K>& group,
                                                const BlockTask& task) {
  ExactDiagonalRows<K>(group, task);
  group.Sync();
  if (group.thread < kSubBlocks) group.shared->fast_rows[group.thread] = kSubBlockRows;
  for (int i = group.warp(); i < kSubBlocks; i += PrepareGroup<K>::kWarps) {
    InvertDiagonal<K>(group, task, i);
    __syncwarp();
    KeepDiagonal<K>(group, i);
  }
  group.Sync();
}

// Expects the block's rows requested, and fast_rows at 16. Calls, in this order: await_rows(),
// after which every thread may read the rows; begin(); acquire() before the first write to the
// slot; draw() and, some time later, look_ahead(), once every thread has passed acquire(); and
// prefetch(), once the rows' space in shared memory is free again and the group has met after
// look_ahead(). The first kInvertingWarps warps return last. The next block may begin at once: they
// write its slot and read T's sub-blocks until they, too, have passed acquire().
template <int K, typename AwaitRows, typename Begin, typename Acquire, typename Draw,
          typename LookAhead, typename Prefetch>
__device__ __forceinline__ void PrepareBlock(const PrepareGroup<K>& group, const BlockTask& task,
                                             AwaitRows await_rows, Begin begin, Acquire acquire,
                                             Draw draw, LookAhead look_ahead, Prefetch prefetch) {
  PrepareShared<K>& s = *group.shared;
  const BlockScalars scalars = LoadBlockScalars<K>(group, task);
  await_rows();
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
  bool exact = false;
  group.Sync();
  for (int i = 0; i < kSubBlocks; ++i) exact |= s.fast_rows[i] < kSubBlockRows;
  // Addresses are to be computed anew: kept since the rows' norms, they would spill.
  PrepareGroup<K> again = group;
  asm volatile("" : "+r"(again.thread));
  IntraBlockMatrices<K>(again, task, exact, prefetch);
  group.Sync();
  if (exact) CorrectDiagonal<K>(group, task);
  InvertRows<K>(group, task);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_BLOCK_CUH_
