// The state chain as a kernel of its own. A CTA walks over the blocks of one item with one slice
// of V; a warp holds S^T [16 columns of V, K] in fp32 accumulators, which turn into operands
// without moving, and reads the slot's matrices from shared memory. Columns of V are independent,
// so slices do not show in the bits.
#ifndef DELTAFILL_KERNELS_CUDA_PORTABLE_CHAIN_CUH_
#define DELTAFILL_KERNELS_CUDA_PORTABLE_CHAIN_CUH_

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/portable_kernels.h"
#include "kernels/cuda/slot_layout.h"

namespace deltafill::kernels::cuda {

inline constexpr int kMaxSlice = 64;
inline constexpr int kValueStride = kMaxSlice + 8;  // elements of a row of V in shared memory
inline constexpr int kValueTile = kBlockRows * kValueStride * 2;

// Operand b [16 x 16] of a product with a tile's rows as output columns.
template <int width>
__device__ __forceinline__ void LoadRowsOperand(uint32_t tile, int row, int column, int lane,
                                                uint32_t (&b)[4]) {
  LoadMatrix4(tile + TileOffset<width>(row + (lane & 7) + ((lane >> 4) << 3),
                                       column + ((lane >> 3) & 1) * 8),
              b);
}

// Operand b [16 x 16] of a product that sums over a tile's rows.
template <int width>
__device__ __forceinline__ void LoadColumnsOperand(uint32_t tile, int row, int column, int lane,
                                                   uint32_t (&b)[4]) {
  LoadMatrix4Transposed(tile + TileOffset<width>(row + (lane & 15), column + (lane >> 4) * 8), b);
}

template <int tiles>
__device__ __forceinline__ void PackOperand(const float (&acc)[tiles][4], int step,
                                            uint32_t (&a)[4]) {
  a[0] = PackBf16(acc[2 * step][0], acc[2 * step][1]);
  a[1] = PackBf16(acc[2 * step][2], acc[2 * step][3]);
  a[2] = PackBf16(acc[2 * step + 1][0], acc[2 * step + 1][1]);
  a[3] = PackBf16(acc[2 * step + 1][2], acc[2 * step + 1][3]);
}

template <int K>
struct ChainWarp {
  static constexpr int kKeyTiles = K / 8, kTokenTiles = kBlockRows / 8;
  float s[kKeyTiles][4];    // S^T: row v, column k
  float e[kTokenTiles][4];  // X^T, then E^T: row v, column token
  float o[kTokenTiles][4];  // O^T
  int lane;
  int64_t row;  // of V in the state, this lane's first; the second is 8 further

  __device__ __forceinline__ void Load(const float* state) {
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float* at = state + (row + i * 4) * K + tile * 8 + (lane & 3) * 2;
        const float2 pair = state ? *reinterpret_cast<const float2*>(at) : make_float2(0.0f, 0.0f);
        s[tile][i] = pair.x;
        s[tile][i + 1] = pair.y;
      }
    }
  }

  __device__ __forceinline__ void Store(float* state) const {
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        *reinterpret_cast<float2*>(state + (row + i * 4) * K + tile * 8 + (lane & 3) * 2) =
            make_float2(s[tile][i], s[tile][i + 1]);
      }
    }
  }

  // o = qe S, and e = V - ke S.
  __device__ __forceinline__ void ReadState(uint32_t slot, uint32_t values) {
#pragma unroll
    for (int i = 0; i < kTokenTiles * 4; ++i) e[i >> 2][i & 3] = o[i >> 2][i & 3] = 0.0f;
#pragma unroll
    for (int step = 0; step < K / 16; ++step) {
      uint32_t a[4];
      PackOperand(s, step, a);
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; tile += 2) {
        uint32_t b[4];
        LoadRowsOperand<K>(slot + SlotLayout<K>::kKe, tile * 8, step * 16, lane, b);
        MmaBf16(e[tile], a, b[0], b[1]);
        MmaBf16(e[tile + 1], a, b[2], b[3]);
        LoadRowsOperand<K>(slot + SlotLayout<K>::kQe, tile * 8, step * 16, lane, b);
        MmaBf16(o[tile], a, b[0], b[1]);
        MmaBf16(o[tile + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; tile += 2) {
      uint32_t v[4];
      const int token = tile * 8 + (lane >> 4) * 8 + (lane & 7), column = ((lane >> 3) & 1) * 8;
      LoadMatrix4Transposed(values + (token * kValueStride + column) * 2, v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&x)[4] = e[tile + (i >> 1)];
        x[(i & 1) * 2] = LowBf16(v[i]) - x[(i & 1) * 2];
        x[(i & 1) * 2 + 1] = HighBf16(v[i]) - x[(i & 1) * 2 + 1];
      }
    }
  }

  // acc += operand * tile^T for a lower triangular tile.
  __device__ __forceinline__ void MultiplyTriangle(const uint32_t (&a)[4][4], uint32_t tile_at,
                                                   float (&acc)[kTokenTiles][4]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int tile = step * 2; tile < kTokenTiles; tile += 2) {
        uint32_t b[4];
        LoadRowsOperand<kBlockRows>(tile_at, tile * 8, step * 16, lane, b);
        MmaBf16(acc[tile], a[step], b[0], b[1]);
        MmaBf16(acc[tile + 1], a[step], b[2], b[3]);
      }
    }
  }

  // e = t Diag(beta) X; o += p e; S = Diag(decay) S + kg^T e.
  __device__ __forceinline__ void Advance(uint32_t slot, const float* decay, const float* beta) {
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
      const float2 b = *reinterpret_cast<const float2*>(beta + tile * 8 + (lane & 3) * 2);
      e[tile][0] *= b.x;
      e[tile][1] *= b.y;
      e[tile][2] *= b.x;
      e[tile][3] *= b.y;
    }
    uint32_t a[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) PackOperand(e, step, a[step]);
#pragma unroll
    for (int i = 0; i < kTokenTiles * 4; ++i) e[i >> 2][i & 3] = 0.0f;
    MultiplyTriangle(a, slot + SlotLayout<K>::kT, e);
#pragma unroll
    for (int step = 0; step < 4; ++step) PackOperand(e, step, a[step]);
    MultiplyTriangle(a, slot + SlotLayout<K>::kP, o);
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      const float2 d = *reinterpret_cast<const float2*>(decay + tile * 8 + (lane & 3) * 2);
      s[tile][0] *= d.x;
      s[tile][1] *= d.y;
      s[tile][2] *= d.x;
      s[tile][3] *= d.y;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int tile = 0; tile < kKeyTiles; tile += 2) {
        uint32_t b[4];
        LoadColumnsOperand<K>(slot + SlotLayout<K>::kKg, step * 16, tile * 8, lane, b);
        MmaBf16(s[tile], a[step], b[0], b[1]);
        MmaBf16(s[tile + 1], a[step], b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void StoreOutputs(__nv_bfloat16* o_rows, int64_t stride,
                                               bool vectorized, int valid_rows) const {
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
      // Every lane takes part in the exchange, whether or not its token is there.
      const uint32_t pairs[2] = {TransposeMatrix(PackBf16(o[tile][0], o[tile][1])),
                                 TransposeMatrix(PackBf16(o[tile][2], o[tile][3]))};
      __syncwarp();
      const int token = tile * 8 + (lane >> 2);
      if (token < valid_rows) {
        __nv_bfloat16* at = o_rows + token * stride + (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (vectorized) {
            *reinterpret_cast<uint32_t*>(at + i * 8) = pairs[i];
          } else {
            at[i * 8] = reinterpret_cast<const __nv_bfloat162&>(pairs[i]).x;
            at[i * 8 + 1] = reinterpret_cast<const __nv_bfloat162&>(pairs[i]).y;
          }
        }
      }
      __syncwarp();
    }
  }
};

// Requests slot and values of one block; absent blocks leave an empty group.
template <int K>
__device__ __forceinline__ void RequestBlock(const PortableChainParams& p,
                                             const SequenceSpan& sequence, int64_t item,
                                             int64_t block, int column, uint8_t* stage) {
  const int64_t left = sequence.rows - block * kBlockRows;
  if (block < p.wave.first_block + p.wave.blocks && left > 0) {
    const int64_t index = (block - p.wave.first_block) * p.wave.items + (item - p.wave.first_item);
    const uint8_t* slot = p.slots + index * SlotLayout<K>::kBytes;
    for (int at = threadIdx.x * 16; at < SlotLayout<K>::kUsedBytes; at += blockDim.x * 16) {
      CopyAsync16(SharedAddress(stage + at), slot + at, true);
    }
    __nv_bfloat16* values = reinterpret_cast<__nv_bfloat16*>(stage + SlotLayout<K>::kBytes);
    const int64_t first_row = sequence.first_row + block * kBlockRows;
    const int chunks = p.slice / 8;
    for (int chunk = threadIdx.x; chunk < kBlockRows * chunks; chunk += blockDim.x) {
      const int row = chunk / chunks, offset = chunk % chunks * 8;
      const bool present = row < left;
      const __nv_bfloat16* from =
          p.in.v.rows + (first_row + (present ? row : 0)) * p.in.v.stride + column + offset;
      __nv_bfloat16* to = values + row * kValueStride + offset;
      if (p.in.v.vectorized) {
        CopyAsync16(SharedAddress(to), from, present);
      } else {
        for (int i = 0; i < 8; ++i) to[i] = present ? from[i] : __float2bfloat16(0.0f);
      }
    }
  }
  CommitCopies();
}

template <int K>
__global__ void __launch_bounds__(128)
    PortableChainKernel(const __grid_constant__ PortableChainParams p) {
  extern __shared__ __align__(128) uint8_t stages[];
  constexpr int kStageBytes = SlotLayout<K>::kBytes + kValueTile;
  const int64_t item = p.wave.first_item + blockIdx.x;
  const int head = static_cast<int>(item % p.in.value_heads);
  const SequenceSpan sequence = p.in.sequences[item / p.in.value_heads];
  const int64_t sequence_blocks = (sequence.rows + kBlockRows - 1) / kBlockRows;
  const int64_t first = p.wave.first_block;
  const int64_t end = min(first + p.wave.blocks, sequence_blocks);
  if (first > 0 && first >= sequence_blocks) return;

  const int warp_column = blockIdx.y * p.slice + (threadIdx.x >> 5) * 16;
  const int64_t value_column = static_cast<int64_t>(head) * p.in.value_dim;
  const int64_t state_size = static_cast<int64_t>(p.in.value_dim) * K;
  ChainWarp<K> warp;
  warp.lane = threadIdx.x & 31;
  warp.row = warp_column + (warp.lane >> 2);
  float* carried = p.carried + blockIdx.x * state_size;
  const float* initial =
      sequence.initial_state ? sequence.initial_state + head * state_size : nullptr;
  warp.Load(first == 0 ? initial : carried);

  int checkpoint = sequence.checkpoint_begin;
  while (checkpoint < sequence.checkpoint_end && p.in.checkpoints[checkpoint].blocks <= first) {
    ++checkpoint;
  }
  const int slice_column = static_cast<int>(value_column) + blockIdx.y * p.slice;
  RequestBlock<K>(p, sequence, item, first, slice_column, stages);
  for (int64_t block = first; block < end; ++block) {
    const int stage = p.stages == 2 ? static_cast<int>(block - first & 1) : 0;
    uint8_t* at = stages + stage * kStageBytes;
    if (p.stages == 2) {
      RequestBlock<K>(p, sequence, item, block + 1, slice_column,
                      stages + (stage ^ 1) * kStageBytes);
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    const uint32_t slot = SharedAddress(at);
    warp.ReadState(slot, slot + SlotLayout<K>::kBytes + (threadIdx.x >> 5) * 32);
    warp.Advance(slot, reinterpret_cast<const float*>(at + SlotLayout<K>::kDecay),
                 reinterpret_cast<const float*>(at + SlotLayout<K>::kBeta));
    const int64_t done = block * kBlockRows;
    warp.StoreOutputs(
        p.in.o + (sequence.first_row + done) * p.in.o_stride + value_column + warp_column,
        p.in.o_stride, p.in.o_vectorized,
        static_cast<int>(min(sequence.rows - done, int64_t{kBlockRows})));
    for (; checkpoint < sequence.checkpoint_end && p.in.checkpoints[checkpoint].blocks == block + 1;
         ++checkpoint) {
      warp.Store(p.in.checkpoints[checkpoint].state + head * state_size);
    }
    __syncthreads();
    if (p.stages == 1) RequestBlock<K>(p, sequence, item, block + 1, slice_column, stages);
  }
  if (end < sequence_blocks) {
    warp.Store(carried);
  } else if (sequence.final_state) {
    warp.Store(sequence.final_state + head * state_size);
  }
}

template <int K>
cudaError_t LaunchPortableChain(const PortableChainParams& params, cudaStream_t stream) {
  const int bytes = params.stages * (SlotLayout<K>::kBytes + kValueTile);
  cudaError_t error = cudaFuncSetAttribute(PortableChainKernel<K>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(params.wave.items), params.in.value_dim / params.slice);
  PortableChainKernel<K><<<grid, params.slice * 2, bytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PORTABLE_CHAIN_CUH_
