// Shared memory of a chaining CTA of the ring kernel, and the warps that serve it: one thread
// brings slots in, two warps bring V in and take O out.
#ifndef DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/slot_layout.h"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kRingStages = 2;
inline constexpr int kRingSlice = 64;  // columns of V a CTA
inline constexpr int kRingMovers = 64;  // threads that move V and O
inline constexpr int kRingValueTile = kBlockRows * kRingSlice * 2;

// A slot arrives and is given back in three parts, in the order of their use, so that two stages
// suffice.
enum SlotPart { kPartKe, kPartQe, kPartRest, kSlotParts };

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
        BarrierInit(slot_empty(stage, part), 4);
      }
      BarrierInit(values_full(stage), kRingMovers);
      BarrierInit(values_empty(stage), 4);
    }
    BarrierInit(outputs_full(), 4);
    BarrierInit(outputs_empty(), kRingMovers);
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

__device__ __forceinline__ void LoadSlotPart(const RingBarriers& barriers, const RingCursor& at,
                                             const uint8_t* slot, SlotPart part) {
  using Slot = SlotLayout<128>;
  BarrierWait(barriers.slot_empty(at.stage, part), at.phase ^ 1);
  const uint32_t full = barriers.slot_full(at.stage, part);
  const uint32_t to = barriers.base + at.stage * RingChainLayout::kStageBytes;
  if (part == kPartRest) {
    BarrierExpect(full, Slot::kUsedBytes - Slot::kKg);
    BulkCopy(to + Slot::kT, slot + Slot::kT, Slot::kUsedBytes - Slot::kT, full);
    BulkCopy(to + Slot::kKg, slot + Slot::kKg, Slot::kKeyTile, full);
  } else {
    const int offset = part == kPartKe ? Slot::kKe : Slot::kQe;
    BarrierExpect(full, Slot::kKeyTile);
    BulkCopy(to + offset, slot + offset, Slot::kKeyTile, full);
  }
}

__device__ __forceinline__ void RunSlotLoader(const RingParams& p, const RingChainPlace& place,
                                              const RingBarriers& barriers) {
  const uint32_t steps = static_cast<uint32_t>(p.streams[place.stream].steps);
  const uint8_t* slots =
      p.slots + static_cast<int64_t>(place.stream) * p.ring_slots * SlotLayout<128>::kBytes;
  const uint32_t* ready = p.ready + static_cast<int64_t>(place.stream) * p.ring_slots;
  uint32_t* consumed = p.consumed + place.stream * kRingSlices + place.slice;
  RingCursor at;
  int slot = 0;
  uint32_t round = 1;
  auto give_back = [&](RingCursor before, uint32_t done) {
    for (int part = 0; part < kSlotParts; ++part) {
      BarrierWait(barriers.slot_full(before.stage, part), before.phase);
    }
    StoreRelease(consumed, done);
  };
  RingCursor before;
  for (uint32_t step = 0; step < steps; ++step) {
    while (LoadAcquire(ready + slot) < round) {
    }
    FenceAsync();
    const uint8_t* from = slots + static_cast<int64_t>(slot) * SlotLayout<128>::kBytes;
    LoadSlotPart(barriers, at, from, kPartKe);
    if (step > 0) give_back(before, step);
    LoadSlotPart(barriers, at, from, kPartQe);
    LoadSlotPart(barriers, at, from, kPartRest);
    before = at;
    at.Next();
    if (++slot == p.ring_slots) slot = 0, ++round;
  }
  if (steps > 0) give_back(before, steps);
}

// A mover's share of a tile of 64 rows and 64 columns: one 16-byte chunk of every eighth row. Few
// registers are left to these warps, so loops stay loops.
struct RowMover {
  static constexpr int kRowStep = kRingMovers / 8;
  int row, chunk;  // of its first chunk

  // `v` points at this thread's first chunk. Rows from `rows` on become zeros.
  __device__ __forceinline__ void RequestValues(const __nv_bfloat16* v, int64_t stride, bool vectorized,
                                                int rows, uint32_t to) const {
#pragma unroll 1
    for (int r = row; r < kBlockRows; r += kRowStep, v += kRowStep * stride) {
      const bool present = r < rows;
      const uint32_t at = to + r * 128 + ((chunk ^ (r & 7)) << 4);
      if (vectorized) {
        CopyAsync16(at, v, present);
        continue;
      }
#pragma unroll 1
      for (int j = 0; j < 8; ++j) {
        const unsigned short x = present ? __bfloat16_as_ushort(v[j]) : 0;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at + 2 * j), "h"(x) : "memory");
      }
    }
  }

  __device__ __forceinline__ void StoreOutputs(__nv_bfloat16* o, int64_t stride, bool vectorized,
                                               int rows, uint32_t from) const {
#pragma unroll 1
    for (int r = row; r < rows; r += kRowStep, o += kRowStep * stride) {
      const uint32_t at = from + r * 128 + ((chunk ^ (r & 7)) << 4);
      if (vectorized) {
        uint4 x;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(at)
                     : "memory");
        *reinterpret_cast<uint4*>(o) = x;
        continue;
      }
#pragma unroll 1
      for (int j = 0; j < 8; ++j) {
        unsigned short x;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at + 2 * j) : "memory");
        o[j] = __ushort_as_bfloat16(x);
      }
    }
  }
};

// Brings V of step n in and takes O of step n - 1 out, for every step of the stream.
__device__ __forceinline__ void RunRowMover(const RingParams& p, const RingChainPlace& place,
                                            const RingBarriers& barriers, int thread) {
  const RowMover mover{thread >> 3, thread & 7};
  const RingItem* item = p.items + p.streams[place.stream].first_item;
  const RingItem* const end = item + p.streams[place.stream].items;
  __nv_bfloat16* pending = nullptr;  // O of the step before
  int pending_rows = 0;
  uint32_t o_phase = 0;
  RingCursor at;
  auto store = [&] {
    BarrierWait(barriers.outputs_full(), o_phase);
    mover.StoreOutputs(pending, p.chain.o_stride, p.chain.o_vectorized, pending_rows,
                       barriers.base + RingChainLayout::kOutputs);
    BarrierArrive(barriers.outputs_empty());
    o_phase ^= 1;
  };
#pragma unroll 1
  for (; item != end; ++item) {
    const SequenceSpan* sequence = p.chain.sequences + item->item / p.chain.value_heads;
    const int64_t column = item->item % p.chain.value_heads * 128 + place.slice * kRingSlice +
                           mover.chunk * 8;
    const int64_t row = sequence->first_row + mover.row;
    const __nv_bfloat16* v = p.chain.v.rows + row * p.chain.v.stride + column;
    __nv_bfloat16* o = p.chain.o + row * p.chain.o_stride + column;
#pragma unroll 1
    for (int left = static_cast<int>(sequence->rows); left > 0; left -= kBlockRows) {
      BarrierWait(barriers.values_empty(at.stage), at.phase ^ 1);
      mover.RequestValues(v, p.chain.v.stride, p.chain.v.vectorized, left,
                          barriers.base + RingChainLayout::kValues + at.stage * kRingValueTile);
      if (p.chain.v.vectorized) {
        BarrierArriveAfterCopies(barriers.values_full(at.stage));
      } else {
        BarrierArrive(barriers.values_full(at.stage));
      }
      at.Next();
      if (pending) store();
      pending = o;
      pending_rows = min(left, kBlockRows);
      v += kBlockRows * p.chain.v.stride;
      o += kBlockRows * p.chain.o_stride;
    }
  }
  if (pending) store();
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_
