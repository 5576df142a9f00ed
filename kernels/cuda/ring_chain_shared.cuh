// Shared memory of a chaining CTA of the ring kernel, and the warps that serve it: one brings
// slots in, one gives them back, one brings V in, one takes O out.
#ifndef DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/slot_layout.h"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/used_once.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kRingStages = 2;
inline constexpr int kRingSlice = 64;  // columns of V a CTA
inline constexpr int kRingValueTile = kBlockRows * kRingSlice * 2;

// A slot arrives and is given back in three parts, in the order of their use, so that two stages
// suffice.
enum SlotPart {
  kPartKe,
  kPartRead,   // qe, t, decay, beta
  kPartWrite,  // kg, p
  kSlotParts,
};

// Offsets from the start of shared memory, which is aligned to 1,024 bytes. The barriers lie in
// the padding of the first stage.
struct RingChainLayout {
  static constexpr int kStageBytes = SlotLayout<128>::kBytes;
  static constexpr int kValues = kRingStages * kStageBytes;
  static constexpr int kOutputs = kValues + kRingStages * kRingValueTile;
  static constexpr int kBytes = kOutputs + kRingValueTile;
  static constexpr int kBarriers = SlotLayout<128>::kUsedBytes;
};
static_assert(SlotLayout<128>::kBytes - SlotLayout<128>::kUsedBytes >= 256);

struct RingBarriers {
  uint32_t base;  // shared address of shared memory's start

  __device__ uint32_t at(int i) const { return base + RingChainLayout::kBarriers + 8 * i; }
  __device__ uint32_t slot_full(int stage, int part) const { return at(stage * kSlotParts + part); }
  __device__ uint32_t slot_empty(int stage, int part) const {
    return at((kRingStages + stage) * kSlotParts + part);
  }
  __device__ uint32_t values_full(int stage) const {
    return at(2 * kRingStages * kSlotParts + stage);
  }
  __device__ uint32_t values_empty(int stage) const { return values_full(kRingStages + stage); }
  __device__ uint32_t outputs_full() const { return values_full(2 * kRingStages); }
  __device__ uint32_t outputs_empty() const { return values_full(2 * kRingStages + 1); }

  __device__ void Init() const {
    for (int stage = 0; stage < kRingStages; ++stage) {
      for (int part = 0; part < kSlotParts; ++part) {
        BarrierInit(slot_full(stage, part), 1);
        BarrierInit(slot_empty(stage, part), 4 + 1);  // the chain's warps and the returner
      }
      BarrierInit(values_full(stage), 32);
      BarrierInit(values_empty(stage), 4);
    }
    BarrierInit(outputs_full(), 4);
    BarrierInit(outputs_empty(), 1);
  }
};

struct RingChainPlace {
  int stream;
  int slice;  // its first column of V is 64 * slice
};

// Where a walk over the steps stands in the two stages.
struct RingCursor {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void Next() {
    phase ^= stage;
    stage ^= 1;
  }
};

// `slot` counts over all streams.
__device__ __forceinline__ void LoadSlotPart(const RingParams& p, const RingBarriers& barriers,
                                             const RingCursor& at, int slot, SlotPart part) {
  using Slot = SlotLayout<128>;
  const uint8_t* from = p.slots + static_cast<int64_t>(slot) * Slot::kBytes;
  BarrierWait(barriers.slot_empty(at.stage, part), at.phase ^ 1);
  const uint32_t full = barriers.slot_full(at.stage, part);
  const uint32_t to = barriers.base + at.stage * RingChainLayout::kStageBytes;
  auto copy = [&](int offset, int bytes) { BulkCopy(to + offset, from + offset, bytes, full); };
  switch (part) {
    case kPartKe:
      BarrierExpect(full, Slot::kKeyTile);
      copy(Slot::kKe, Slot::kKeyTile);
      break;
    case kPartRead:
      BarrierExpect(full, Slot::kKeyTile + Slot::kSquareTile + kSlotScalars * 2);
      copy(Slot::kT, Slot::kSquareTile);
      // Racecheck takes a bulk copy of bytes that ordinary loads read for a hazard, a box not.
      TensorCopy(to + Slot::kDecay, &p.tiles.scalars, 0, 0, slot, full);
      copy(Slot::kQe, Slot::kKeyTile);
      break;
    default:
      BarrierExpect(full, Slot::kKeyTile + Slot::kSquareTile);
      copy(Slot::kKg, Slot::kKeyTile);
      copy(Slot::kP, Slot::kSquareTile);
  }
}

__device__ __forceinline__ int TrailingOnes(uint32_t x) { return __popc(x & ~(x + 1)); }

// How many steps from `step` on are ready, at least one: one look at all flags of the stream, a
// lane each, often serves several steps, so that polling seldom delays a copy.
__device__ __forceinline__ uint32_t WaitForSteps(const RingParams& p, const uint32_t* ready,
                                                 uint32_t step, int lane) {
  const int slots = p.ring_slots, slot = static_cast<int>(step % slots);
  // Slots before `slot` are looked at for their next round.
  const uint32_t wanted = step / slots + (lane < slot ? 2 : 1);
  for (;;) {
    const uint32_t flag = lane < slots ? LoadRelaxed(ready + lane) : 0;
    const uint32_t mask = __ballot_sync(~0u, flag >= wanted);
    const int ahead = min(TrailingOnes(mask >> slot), slots - slot);
    const int around = ahead == slots - slot ? min(TrailingOnes(mask), slot) : 0;
    if (ahead > 0) {
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
      __syncwarp();
      return ahead + around;
    }
    __nanosleep(20);
  }
}

__device__ __forceinline__ void RunSlotLoader(const RingParams& p, const RingChainPlace& place,
                                              const RingBarriers& barriers, int lane) {
  const uint32_t steps = static_cast<uint32_t>(p.streams[place.stream].steps);
  const int first_slot = place.stream * p.ring_slots;
  const uint32_t* ready = p.flags[place.stream].ready;
  RingCursor at;
  int slot = 0;
#pragma unroll 1
  for (uint32_t step = 0; step < steps;) {
    const uint32_t end = min(steps, step + WaitForSteps(p, ready, step, lane));
    if (lane == 0) FenceAsync();
#pragma unroll 1
    for (; step < end; ++step) {
      if (lane == 0) {
        LoadSlotPart(p, barriers, at, first_slot + slot, kPartKe);
        LoadSlotPart(p, barriers, at, first_slot + slot, kPartRead);
        LoadSlotPart(p, barriers, at, first_slot + slot, kPartWrite);
      }
      at.Next();
      if (++slot == p.ring_slots) slot = 0;
    }
  }
}

// Tells the preparing groups how many slots have been read; a thread of its own, so that the
// loader never waits for what it has requested.
__device__ __forceinline__ void RunSlotReturner(const RingParams& p, const RingChainPlace& place,
                                                const RingBarriers& barriers) {
  const uint32_t steps = static_cast<uint32_t>(p.streams[place.stream].steps);
  uint32_t* consumed = &p.flags[place.stream].consumed[place.slice];
  RingCursor at;
  for (uint32_t step = 0; step < steps; ++step, at.Next()) {
    for (int part = 0; part < kSlotParts; ++part) {
      BarrierWait(barriers.slot_full(at.stage, part), at.phase);
      BarrierArrive(barriers.slot_empty(at.stage, part));
    }
    // The copy has landed, so the slot has been read; no write of ours needs a release.
    StoreRelaxed(consumed, step + 1);
  }
}

// A lane's share of a tile of 64 rows and 64 columns, where the copy engine does not move it: one
// 16-byte chunk of every fourth row. Few registers are left to these warps, so most loops stay
// loops.
struct RowMover {
  static constexpr int kRowStep = 4;
  int row, chunk;  // of its first chunk

  __device__ __forceinline__ uint32_t SharedOffset(int r) const {
    return SwizzledPiece(0, r, chunk);
  }

  // `v` points at this lane's first chunk. Rows from `rows` on become zeros.
  __device__ __forceinline__ void RequestValues(const DeviceRows& from, const __nv_bfloat16* v,
                                                int rows, uint32_t to) const {
    if (from.vectorized) {
#pragma unroll 2
      for (int r = row; r < kBlockRows; r += kRowStep, v += kRowStep * from.stride) {
        CopyAsync16UsedOnce(to + SharedOffset(r), v, r < rows);
      }
      return;
    }
#pragma unroll 1
    for (int r = row; r < kBlockRows; r += kRowStep, v += kRowStep * from.stride) {
#pragma unroll 1
      for (int j = 0; j < 8; ++j) {
        const unsigned short x = r < rows ? __bfloat16_as_ushort(v[j]) : 0;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + SharedOffset(r) + 2 * j), "h"(x)
                     : "memory");
      }
    }
  }

  __device__ __forceinline__ void StoreOutputs(__nv_bfloat16* o, int64_t stride, bool vectorized,
                                               int rows, uint32_t from) const {
    if (vectorized) {
#pragma unroll 2
      for (int r = row; r < rows; r += kRowStep, o += kRowStep * stride) {
        uint4 x;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(from + SharedOffset(r))
                     : "memory");
        StoreUsedOnce(o, x);
      }
      return;
    }
#pragma unroll 1
    for (int r = row; r < rows; r += kRowStep, o += kRowStep * stride) {
#pragma unroll 1
      for (int j = 0; j < 8; ++j) {
        unsigned short x;
        asm volatile("ld.shared.u16 %0, [%1];"
                     : "=h"(x)
                     : "r"(from + SharedOffset(r) + 2 * j)
                     : "memory");
        o[j] = __ushort_as_bfloat16(x);
      }
    }
  }
};

// Calls move(first row, column, rows) for every block of the stream; the row and column are those
// of the lane's first chunk.
template <typename Move>
__device__ __forceinline__ void ForEachBlock(const RingParams& p, const RingChainPlace& place,
                                             const RowMover& mover, Move move) {
  const RingItem* item = p.items + p.streams[place.stream].first_item;
  const RingItem* const end = item + p.streams[place.stream].items;
#pragma unroll 1
  for (; item != end; ++item) {
    const SequenceSpan* sequence = p.chain.sequences + item->item / p.chain.value_heads;
    const int64_t column =
        item->item % p.chain.value_heads * 128 + place.slice * kRingSlice + mover.chunk * 8;
    int64_t row = sequence->first_row + mover.row;
#pragma unroll 1
    for (int left = static_cast<int>(sequence->rows); left > 0; left -= kBlockRows) {
      move(row, column, min(left, kBlockRows));
      row += kBlockRows;
    }
  }
}

// Whole blocks come as boxes if V is mapped. Rows after a sequence's end are those of the next one,
// so lanes bring its last block, as they bring what is not mapped.
__device__ __forceinline__ void RunValueMover(const RingParams& p, const RingChainPlace& place,
                                              const RingBarriers& barriers, int lane) {
  const RowMover mover{lane >> 3, lane & 7};
  RingCursor at;
  int stored_tiles = 0;  // how many of the next ones lanes have written
  ForEachBlock(p, place, mover, [&](int64_t row, int64_t column, int rows) {
    BarrierWait(barriers.values_empty(at.stage), at.phase ^ 1);
    const uint32_t full = barriers.values_full(at.stage);
    const uint32_t to = barriers.base + RingChainLayout::kValues + at.stage * kRingValueTile;
    if (p.tiles.v_mapped && rows == kBlockRows) {
      if (lane == 0) {
        if (stored_tiles > 0) FenceAsyncShared();
        BarrierExpect(full, kRingValueTile);
        TensorCopyUsedOnce(to, &p.tiles.v, static_cast<int>(column), static_cast<int>(row), full);
      } else {
        BarrierArrive(full);
      }
      stored_tiles -= stored_tiles > 0;
    } else {
      mover.RequestValues(p.chain.v, p.chain.v.rows + row * p.chain.v.stride + column, rows, to);
      if (p.chain.v.vectorized) {
        BarrierArriveAfterCopies(full);
      } else {
        BarrierArrive(full);
      }
      stored_tiles = kRingStages;
    }
    at.Next();
  });
}

__device__ __forceinline__ void RunOutputMover(const RingParams& p, const RingChainPlace& place,
                                               const RingBarriers& barriers, int lane) {
  const RowMover mover{lane >> 3, lane & 7};
  const uint32_t from = barriers.base + RingChainLayout::kOutputs;
  uint32_t phase = 0;
  ForEachBlock(p, place, mover, [&](int64_t row, int64_t column, int rows) {
    BarrierWait(barriers.outputs_full(), phase);
    phase ^= 1;
    if (p.tiles.o_mapped && rows == kBlockRows) {
      if (lane == 0) {
        FenceAsyncShared();
        TensorStoreUsedOnce(&p.tiles.o, static_cast<int>(column), static_cast<int>(row), from);
        CommitTensorStores();
        WaitForTensorReads<0>();
      }
    } else {
      mover.StoreOutputs(p.chain.o + row * p.chain.o_stride + column, p.chain.o_stride,
                         p.chain.o_vectorized, rows, from);
    }
    __syncwarp();
    if (lane == 0) BarrierArrive(barriers.outputs_empty());
  });
  if (lane == 0) WaitForTensorStores();
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_
