// The chaining role of the ring kernel: a warpgroup holds S^T [64 columns of V, K] in fp32
// accumulators. S, X and E turn from accumulators into operands of the next product without
// leaving registers:
//
//   X^T = (V^T - S^T ke^T) Diag(beta)     E^T = X^T t^T     S^T <- S^T Diag(decay) + E^T kg
//   O^T = S^T qe^T + E^T p^T
//
// S is updated in two halves of K, so that the next block's X starts on the first.
#ifndef DELTAFILL_KERNELS_CUDA_RING_CHAIN_CUH_
#define DELTAFILL_KERNELS_CUDA_RING_CHAIN_CUH_

#include "kernels/cuda/ring_chain_shared.cuh"

namespace deltafill::kernels::cuda {

struct RingChain {
  using Slot = SlotLayout<128>;

  float s[2][32];             // halves of K: row v, column k
  float e[32];                // X^T, then E^T: row v, column token
  float o[32];                // O^T
  uint32_t s_operand[2][16];  // S^T before the block, bf16
  uint32_t e_operand[16];     // X^T, then E^T

  int warp, lane;
  uint32_t values, outputs;  // shared addresses of the tiles of V (two stages) and O

  __device__ __forceinline__ void PackState(int half) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      s_operand[half][i] = PackBf16(s[half][2 * i], s[half][2 * i + 1]);
    }
  }

  __device__ __forceinline__ void PackE() {
#pragma unroll
    for (int i = 0; i < 16; ++i) e_operand[i] = PackBf16(e[2 * i], e[2 * i + 1]);
  }

  // X^T: what V - ke S left, times beta, which is rounded once with it.
  __device__ __forceinline__ void ScaleE(uint32_t slot) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 beta = LoadSharedPair(slot + Slot::kBeta + (i * 8 + (lane & 3) * 2) * 4);
      e[i * 4] *= beta.x;
      e[i * 4 + 1] *= beta.y;
      e[i * 4 + 2] *= beta.x;
      e[i * 4 + 3] *= beta.y;
    }
  }

  __device__ __forceinline__ void LoadState(const float* state) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int row = warp * 16 + (lane >> 2) + (i & 1) * 8, column = (i >> 1) * 8 + (lane & 3) * 2;
      const float2 pair = state ? *reinterpret_cast<const float2*>(state + row * 128 + column)
                                : make_float2(0.0f, 0.0f);
      s[i >> 4][(i & 15) * 2] = pair.x;
      s[i >> 4][(i & 15) * 2 + 1] = pair.y;
    }
  }

  __device__ __forceinline__ void StoreState(float* state) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int row = warp * 16 + (lane >> 2) + (i & 1) * 8, column = (i >> 1) * 8 + (lane & 3) * 2;
      *reinterpret_cast<float2*>(state + row * 128 + column) =
          make_float2(s[i >> 4][(i & 15) * 2], s[i >> 4][(i & 15) * 2 + 1]);
    }
  }

  static __device__ __forceinline__ float2 LoadSharedPair(uint32_t at) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(at)
                 : "memory");
    return pair;
  }

  __device__ __forceinline__ void ScaleState(uint32_t slot) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 d = LoadSharedPair(slot + Slot::kDecay + (i * 8 + (lane & 3) * 2) * 4);
      float* at = &s[i >> 3][(i & 7) * 4];
      at[0] *= d.x;
      at[1] *= d.y;
      at[2] *= d.x;
      at[3] *= d.y;
    }
  }

  // e = V^T.
  __device__ __forceinline__ void LoadValues(int stage) {
    const int i = lane >> 3, row = (i >> 1) * 8 + (lane & 7);
    const uint32_t at = SwizzledPiece(values + stage * kRingValueTile, row, warp * 2 + (i & 1));
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t v[4];
      LoadMatrix4Transposed(at + pair * 16 * 128, v);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        e[pair * 8 + j * 2] = LowBf16(v[j]);
        e[pair * 8 + j * 2 + 1] = HighBf16(v[j]);
      }
    }
  }

  __device__ __forceinline__ void StoreOutputs() const {
    const int i = lane >> 3, row = (i >> 1) * 8 + (lane & 7);
    const uint32_t at = SwizzledPiece(outputs, row, warp * 2 + (i & 1));
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float* x = &o[pair * 8];
      StoreMatrix4Transposed(at + pair * 16 * 128, PackBf16(x[0], x[1]), PackBf16(x[2], x[3]),
                             PackBf16(x[4], x[5]), PackBf16(x[6], x[7]));
    }
  }

  // e -= S^T ke^T over one half of K.
  __device__ __forceinline__ void IssueX(uint32_t slot, int half) {
    const uint64_t ke = TileDescriptor(slot + Slot::kKe + half * 8192, 16);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Wgmma64<-1, 0>(e, &s_operand[half][step * 4], Advance(ke, step * 32), true);
    }
    WgmmaCommit();
  }

  // o = S^T qe^T.
  __device__ __forceinline__ void IssueRead(uint32_t slot) {
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const uint64_t qe = TileDescriptor(slot + Slot::kQe + (step >> 2) * 8192, 16);
      Wgmma64<1, 0>(o, &s_operand[step >> 2][(step & 3) * 4], Advance(qe, (step & 3) * 32),
                    step > 0);
    }
    WgmmaCommit();
  }

  // acc (+)= e_operand tile^T, tile the slot's t or p.
  __device__ __forceinline__ void IssueSquare(uint32_t tile, float (&acc)[32], bool accumulate) {
    const uint64_t b = TileDescriptor(tile, 16);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Wgmma64<1, 0>(acc, &e_operand[step * 4], Advance(b, step * 32), accumulate || step > 0);
    }
    WgmmaCommit();
  }

  __device__ __forceinline__ void IssueWrite(uint32_t slot, int half) {
    const uint64_t kg = TileDescriptor(slot + Slot::kKg + half * 8192, 8192);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Wgmma64<1, 1>(s[half], &e_operand[step * 4], Advance(kg, step * 2048), true);
    }
    WgmmaCommit();
  }

  __device__ __forceinline__ void Arrive(uint32_t barrier) const {
    __syncwarp();
    if (lane == 0) BarrierArrive(barrier);
  }
};

// One item from its initial to its final state.
__device__ __forceinline__ void ChainItem(const RingParams& p, int64_t item, int column,
                                          const RingBarriers& barriers, RingChain& c,
                                          RingCursor& at, uint32_t& o_phase) {
  const SequenceSpan& sequence = p.chain.sequences[item / p.chain.value_heads];
  const int blocks = static_cast<int>((sequence.rows + kBlockRows - 1) / kBlockRows);
  const int64_t offset = item % p.chain.value_heads * (128 * 128) + column * 128;
  c.LoadState(sequence.initial_state ? sequence.initial_state + offset : nullptr);
  int checkpoint = sequence.checkpoint_begin;
  const int checkpoint_end = sequence.checkpoint_end;
  int next_checkpoint =
      checkpoint < checkpoint_end ? static_cast<int>(p.chain.checkpoints[checkpoint].blocks) : 0;
  auto store_checkpoints = [&](int done) {
    while (next_checkpoint == done) {
      c.StoreState(p.chain.checkpoints[checkpoint].state + offset);
      ++checkpoint;
      next_checkpoint = checkpoint < checkpoint_end
                            ? static_cast<int>(p.chain.checkpoints[checkpoint].blocks)
                            : 0;
    }
  };
  auto slot_at = [&] { return barriers.base + at.stage * RingChainLayout::kStageBytes; };
  auto wait_part = [&](SlotPart part) {
    BarrierWait(barriers.slot_full(at.stage, part), at.phase);
  };
  // X and the read of S for the block at `at`, up to X ready.
  auto load_values = [&] {
    BarrierWait(barriers.values_full(at.stage), at.phase);
    c.LoadValues(at.stage);
    c.Arrive(barriers.values_empty(at.stage));
  };
  auto read = [&] {
    wait_part(kPartRead);
    Pin(c.o);
    WgmmaFence();
    c.IssueRead(slot_at());
    WgmmaWait<1>();
    Pin(c.e);
    c.Arrive(barriers.slot_empty(at.stage, kPartKe));
  };
  // From X ready, the read of S into O pending, to the writes of S and O pending.
  auto advance = [&] {
    const uint32_t slot = slot_at();
    c.ScaleE(slot);
    c.PackE();
    Pin(c.e_operand);
    Pin(c.e);
    WgmmaFence();
    c.IssueSquare(slot + RingChain::Slot::kT, c.e, false);
    c.ScaleState(slot);
    WgmmaWait<0>();
    Pin(c.e);
    Pin(c.o);
    c.PackE();
    Pin(c.e_operand);
    Pin(c.s[0]);
    Pin(c.s[1]);
    wait_part(kPartWrite);
    WgmmaFence();
    c.IssueWrite(slot, 0);
    c.IssueWrite(slot, 1);
    c.IssueSquare(slot + RingChain::Slot::kP, c.o, true);
    c.Arrive(barriers.slot_empty(at.stage, kPartRead));
  };
  auto emit = [&](int stage) {
    c.Arrive(barriers.slot_empty(stage, kPartWrite));
    BarrierWait(barriers.outputs_empty(), o_phase ^ 1);
    o_phase ^= 1;
    c.StoreOutputs();
    c.Arrive(barriers.outputs_full());
  };
  if (blocks > 0) {
    load_values();
    wait_part(kPartKe);
    c.PackState(0);
    c.PackState(1);
    Pin(c.s_operand[0]);
    Pin(c.s_operand[1]);
    Pin(c.e);
    WgmmaFence();
    c.IssueX(slot_at(), 0);
    c.IssueX(slot_at(), 1);
    read();
  }
#pragma unroll 1
  for (int block = 1; block < blocks; ++block) {
    const int stage = at.stage;
    advance();
    at.Next();
    load_values();
    wait_part(kPartKe);
    const uint32_t next = slot_at();
    WgmmaWait<2>();
    Pin(c.s[0]);
    c.PackState(0);
    Pin(c.s_operand[0]);
    Pin(c.e);
    WgmmaFence();
    c.IssueX(next, 0);
    WgmmaWait<2>();
    Pin(c.s[1]);
    c.PackState(1);
    Pin(c.s_operand[1]);
    WgmmaFence();
    c.IssueX(next, 1);
    store_checkpoints(block);
    WgmmaWait<2>();
    Pin(c.o);
    emit(stage);
    read();
  }
  if (blocks > 0) {
    advance();
    WgmmaWait<0>();
    Pin(c.s[0]);
    Pin(c.s[1]);
    Pin(c.o);
    emit(at.stage);
    store_checkpoints(blocks);
    at.Next();
  }
  if (sequence.final_state) c.StoreState(sequence.final_state + offset);
}

__device__ __forceinline__ void RunChaining(const RingParams& p, const RingChainPlace& place,
                                            const RingBarriers& barriers, int thread) {
  RingChain c;
  c.warp = thread >> 5;
  c.lane = thread & 31;
  c.values = barriers.base + RingChainLayout::kValues;
  c.outputs = barriers.base + RingChainLayout::kOutputs;
  const RingStream stream = p.streams[place.stream];
  RingCursor at;
  uint32_t o_phase = 0;
  for (int64_t i = 0; i < stream.items; ++i) {
    ChainItem(p, p.items[stream.first_item + i].item, place.slice * kRingSlice, barriers, c, at,
              o_phase);
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_CHAIN_CUH_
