// The short convolution with SiLU on a tile of its input in shared memory: 64 channels, a row a
// token.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_CONV_CUH_
#define DELTAFILL_KERNELS_CUDA_DENSE_CONV_CUH_

#include "kernels/cuda/dense_hopper.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/short_conv.cuh"

namespace deltafill::kernels::cuda {

// Of a warpgroup. Row t becomes the output of row t + 3, whose input it needs no longer, so that
// the outputs start where a copy may start. A thread has two channels of a quarter of the rows.
struct DenseConvolution {
  static constexpr int kRun = kDenseTokenTile / 4, kBatch = 11;
  static_assert(kRun * 4 == kDenseTokenTile && kRun % kBatch == 0);

  const DenseConv& conv;
  uint32_t rows;  // shared
  int barrier, warp, lane, channel, first_token;

  __device__ __forceinline__ uint32_t Word(int row) const {
    return SwizzledPiece(rows, row, lane >> 2) + (lane & 3) * 4;
  }
  __device__ __forceinline__ uint32_t Load(int row) const {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(Word(row)) : "memory");
    return x;
  }
  __device__ __forceinline__ void Store(int row, uint32_t x) const {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(Word(row)), "r"(x) : "memory");
  }

  // Rows that are read again: by what takes tails, and where a sequence starts.
  __device__ __forceinline__ void Keep() const {
    for (int i = 0; i < conv.kept_count; ++i) {
      const int at = conv.kept[i] + warp, row = at - first_token;
      if (warp == kDenseLookBack || row < 0 || row >= kDenseTokenTile || at >= conv.rows) continue;
      StoreGlobal(conv.before + at * conv.before_stride + channel + lane * 2, Load(row));
    }
  }

  __device__ __forceinline__ void Run() const {
    Keep();
    const float4* const weights = reinterpret_cast<const float4*>(conv.weight) + channel + lane * 2;
    const float4 low = weights[0], high = weights[1];
    const int first = warp * kRun;
    uint32_t before[3] = {}, held[3];
    if (warp > 0) {
#pragma unroll
      for (int i = 0; i < 3; ++i) before[i] = Load(first - 3 + i);
    }
    GroupBarrier(barrier, 128);  // nothing is replaced before its neighbour has read it
#pragma unroll
    for (int batch = 0; batch < kRun; batch += kBatch) {
      uint32_t now[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) now[i] = Load(first + batch + i);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const uint32_t y = PackBf16(ConvolvedSilu(low, LowBf16(before[0]), LowBf16(before[1]),
                                                  LowBf16(before[2]), LowBf16(now[i])),
                                    ConvolvedSilu(high, HighBf16(before[0]), HighBf16(before[1]),
                                                  HighBf16(before[2]), HighBf16(now[i])));
        before[0] = before[1], before[1] = before[2], before[2] = now[i];
        if (batch + i < 3) {
          held[batch + i] = y;
        } else {
          Store(first + batch + i - 3, y);
        }
      }
    }
    GroupBarrier(barrier, 128);  // the rows before the run have been read
    if (warp == 0) return;
#pragma unroll
    for (int i = 0; i < 3; ++i) Store(first - 3 + i, held[i]);
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_CONV_CUH_
