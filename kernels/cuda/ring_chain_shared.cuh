// Shared memory of a chaining CTA of the ring kernel, and its serving warpgroups: one thread
// brings slots in, a warpgroup brings V in and takes O out.
#ifndef DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/slot_layout.h"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kRingStages = 3;
inline constexpr int kRingSlice = 64;  // columns of V a chaining warpgroup
inline constexpr int kRingValueTile = kBlockRows * kRingSlice * 2;

// Offsets from the start of shared memory, which is aligned to 1,024 bytes. The barriers lie in
// the padding of the first stage.
struct RingChainLayout {
  static constexpr int kStageBytes = SlotLayout<128>::kBytes;
  static constexpr int kValues = kRingStages * kStageBytes;
  static constexpr int kOutputs = kValues + 2 * kRingValueTile;
  static constexpr int kBytes = kOutputs + 2 * kRingValueTile;
  static constexpr int kBarriers = SlotLayout<128>::kUsedBytes;
};
static_assert(RingChainLayout::kBytes <= 227 * 1024);
static_assert(SlotLayout<128>::kBytes - SlotLayout<128>::kUsedBytes >= 256);

struct RingBarriers {
  uint32_t base;  // shared address of shared memory's start

  __device__ uint32_t at(int i) const { return base + RingChainLayout::kBarriers + 8 * i; }
  __device__ uint32_t slot_full(int stage) const { return at(stage); }
  __device__ uint32_t slot_empty(int stage) const { return at(kRingStages + stage); }
  __device__ uint32_t values_full(int w) const { return at(2 * kRingStages + w); }
  __device__ uint32_t values_empty(int w) const { return at(2 * kRingStages + 2 + w); }
  __device__ uint32_t outputs_full(int w) const { return at(2 * kRingStages + 4 + w); }
  __device__ uint32_t outputs_empty(int w) const { return at(2 * kRingStages + 6 + w); }

  __device__ void Init(int chains) const {
    for (int i = 0; i < kRingStages; ++i) {
      BarrierInit(slot_full(i), 1);
      BarrierInit(slot_empty(i), 4 * chains);
    }
    for (int w = 0; w < 2; ++w) {
      BarrierInit(values_full(w), 128);
      BarrierInit(values_empty(w), 4);
      BarrierInit(outputs_full(w), 4);
      BarrierInit(outputs_empty(w), 128);
    }
  }
};

struct RingChainPlace {
  int stream;
  int slice;   // of the CTA: its first column of V is 64 * slice
  int chains;  // warpgroups that chain: 1 or 2
};

__device__ __forceinline__ void RunSlotLoader(const RingParams& p, const RingChainPlace& place,
                                              const RingBarriers& barriers) {
  const int64_t steps = p.streams[place.stream].steps;
  const uint8_t* slots =
      p.slots + static_cast<int64_t>(place.stream) * p.ring_slots * SlotLayout<128>::kBytes;
  const uint32_t* ready = p.ready + static_cast<int64_t>(place.stream) * p.ring_slots;
  uint32_t* consumed = p.consumed + place.stream * 2 + place.slice;
  int stage = 0, slot = 0;
  uint32_t phase = 0, round = 1;
  for (int64_t step = 0; step < steps; ++step) {
    BarrierWait(barriers.slot_empty(stage), phase ^ 1);
    while (LoadAcquire(ready + slot) < round) {
    }
    FenceAsync();
    const uint32_t full = barriers.slot_full(stage);
    const uint32_t to = barriers.base + stage * RingChainLayout::kStageBytes;
    const uint8_t* from = slots + static_cast<int64_t>(slot) * SlotLayout<128>::kBytes;
    BarrierExpect(full, SlotLayout<128>::kUsedBytes);
    constexpr int kPiece = SlotLayout<128>::kKeyTile;
    for (int at = 0; at < SlotLayout<128>::kUsedBytes; at += kPiece) {
      BulkCopy(to + at, from + at, min(kPiece, SlotLayout<128>::kUsedBytes - at), full);
    }
    if (step > 0) {
      const int before = stage == 0 ? kRingStages - 1 : stage - 1;
      BarrierWait(barriers.slot_full(before), stage == 0 ? phase ^ 1 : phase);
      StoreRelease(consumed, static_cast<uint32_t>(step));
    }
    if (++stage == kRingStages) stage = 0, phase ^= 1;
    if (++slot == p.ring_slots) slot = 0, ++round;
  }
  if (steps == 0) return;
  const int last = stage == 0 ? kRingStages - 1 : stage - 1;
  BarrierWait(barriers.slot_full(last), stage == 0 ? phase ^ 1 : phase);
  StoreRelease(consumed, static_cast<uint32_t>(steps));
}

// The rows of V of one block into shared memory: 64 columns, 128-byte swizzle.
__device__ __forceinline__ void RequestValues(const DeviceRows& v, int64_t first_row, int rows,
                                              int64_t column, uint32_t to, int thread) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = (thread >> 3) + i * 16, chunk = thread & 7;
    const bool present = row < rows;
    const __nv_bfloat16* from =
        v.rows + (first_row + (present ? row : 0)) * v.stride + column + chunk * 8;
    const uint32_t at = to + row * 128 + ((chunk ^ (row & 7)) << 4);
    if (v.vectorized) {
      CopyAsync16(at, from, present);
    } else {
      for (int j = 0; j < 8; ++j) {
        const unsigned short x = present ? __bfloat16_as_ushort(from[j]) : 0;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at + 2 * j), "h"(x) : "memory");
      }
    }
  }
}

__device__ __forceinline__ void StoreOutputRows(__nv_bfloat16* o, int64_t stride, bool vectorized,
                                                int rows, uint32_t from, int thread) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = (thread >> 3) + i * 16, chunk = thread & 7;
    if (row >= rows) continue;
    uint32_t x[4];
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from + row * 128 + ((chunk ^ (row & 7)) << 4))
                 : "memory");
    __nv_bfloat16* to = o + row * stride + chunk * 8;
    if (vectorized) {
      *reinterpret_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
    } else {
      for (int j = 0; j < 8; ++j) {
        to[j] = __ushort_as_bfloat16(static_cast<unsigned short>(x[j >> 1] >> (j & 1) * 16));
      }
    }
  }
}

// Brings V of step n in and takes O of step n - 1 out, for every step of the stream.
__device__ __forceinline__ void RunRowMover(const RingParams& p, const RingChainPlace& place,
                                            const RingBarriers& barriers, int thread) {
  const RingStream stream = p.streams[place.stream];
  __nv_bfloat16* o = nullptr;  // of the step before
  int o_rows = 0;
  uint32_t phase = 0;
  auto store = [&](uint32_t parity) {
    for (int w = 0; w < place.chains; ++w) {
      BarrierWait(barriers.outputs_full(w), parity);
      StoreOutputRows(o + w * kRingSlice, p.chain.o_stride, p.chain.o_vectorized, o_rows,
                      barriers.base + RingChainLayout::kOutputs + w * kRingValueTile, thread);
      BarrierArrive(barriers.outputs_empty(w));
    }
  };
  for (int64_t i = 0; i < stream.items; ++i) {
    const int64_t item = p.items[stream.first_item + i].item;
    const SequenceSpan& sequence = p.chain.sequences[item / p.chain.value_heads];
    const int64_t column =
        item % p.chain.value_heads * p.chain.value_dim + place.slice * kRingSlice;
    const int64_t first_row = sequence.first_row, rows = sequence.rows;
    for (int64_t start = 0; start < rows; start += kBlockRows, phase ^= 1) {
      const int block_rows = static_cast<int>(min(rows - start, int64_t{kBlockRows}));
      for (int w = 0; w < place.chains; ++w) {
        BarrierWait(barriers.values_empty(w), phase ^ 1);
        RequestValues(p.chain.v, first_row + start, block_rows, column + w * kRingSlice,
                      barriers.base + RingChainLayout::kValues + w * kRingValueTile, thread);
        if (p.chain.v.vectorized) {
          BarrierArriveAfterCopies(barriers.values_full(w));
        } else {
          BarrierArrive(barriers.values_full(w));
        }
      }
      if (o) store(phase ^ 1);
      o = p.chain.o + (first_row + start) * p.chain.o_stride + column;
      o_rows = block_rows;
    }
  }
  if (o) store(phase ^ 1);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_CHAIN_SHARED_CUH_
