// A part's keys for 16 or 32 heads, which are the rows of the matrix products: scores, weights, and
// sums of latents. A warp has 16 keys of 16 heads for the scores, and 64 columns of the sums.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_STEP_PART_CUH_
#define DELTAFILL_KERNELS_CUDA_LATENT_STEP_PART_CUH_

#include "kernels/cuda/latent.h"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kPartKeys = 64;  // of a tile
inline constexpr int kPartThreads = 256;
static_assert(kLatentStepRankMax == kPartThreads / 32 * 64);

inline constexpr int kPartStride = kLatentStepRankMax + kLatentStepRopeMax + 8;

// head_tiles: of 16 heads. buffers: of keys; with one, a tile is waited for.
template <int head_tiles, int buffers>
struct PartShared {
  static constexpr int kHeads = head_tiles * 16;
  static constexpr int kWeightStride = kPartKeys + 8;
  alignas(16) __nv_bfloat16 queries[kHeads * kPartStride];
  alignas(16) __nv_bfloat16 keys[buffers][kPartKeys * kPartStride];
  alignas(16) __nv_bfloat16 weights[kHeads * kWeightStride];
  float4 highs[kHeads];   // of the four groups of 16 keys
  float4 totals[kHeads];  // likewise
};

// `rows` rows of `width` elements; others, and columns up to a multiple of 16, become zeros. Four
// threads a row.
__device__ __forceinline__ void LoadPartRows(const __nv_bfloat16* from, int rows, int padded_rows,
                                             int width, __nv_bfloat16* to) {
  static_assert(kPartThreads == 4 * kPartKeys);
  const int row = threadIdx.x >> 2, pieces = (width + 15) / 16 * 2;
  const __nv_bfloat16* const source = row < rows ? from + static_cast<int64_t>(row) * width : from;
  const uint32_t target = SharedAddress(to + row * kPartStride);
  if (row < padded_rows) {
    for (int piece = threadIdx.x & 3; piece < pieces; piece += 4) {
      const bool present = row < rows && piece * 8 < width;
      CopyAsync16(target + piece * 16, present ? source + piece * 8 : from, present);
    }
  }
  CommitCopies();
}

// fixed_steps: of 16 columns that scores are summed over; 0: by the width.
template <int head_tiles, int buffers, int fixed_steps>
struct PartWarp {
  using Shared = PartShared<head_tiles, buffers>;

  Shared& s;
  int width, warp, lane;

  float sums[head_tiles][8][4];  // 16 heads, 64 columns
  float largest[head_tiles][2], total[head_tiles][2];

  __device__ __forceinline__ bool HasScores() const { return (warp >> 2) < head_tiles; }
  // Of a thread's rows of heads.
  __device__ __forceinline__ int Head(int tile, int half) const {
    return tile * 16 + (lane >> 2) + half * 8;
  }

  __device__ __forceinline__ void Start() {
#pragma unroll
    for (int tile = 0; tile < head_tiles; ++tile) {
      largest[tile][0] = largest[tile][1] = -INFINITY;
      total[tile][0] = total[tile][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        sums[tile][n][0] = sums[tile][n][1] = sums[tile][n][2] = sums[tile][n][3] = 0.0f;
      }
    }
  }

  // Two accumulators a score, for even and odd steps: shorter chains.
  __device__ __forceinline__ void Score(const __nv_bfloat16* keys, int count,
                                        float (&scores)[2][4]) const {
    const int tile = warp >> 2, first_key = (warp & 3) * 16;
    const uint32_t q =
        SharedAddress(s.queries + (tile * 16 + (lane & 15)) * kPartStride + (lane >> 4) * 8);
    const uint32_t k = SharedAddress(
        keys + (first_key + (lane & 7) + (lane >> 4) * 8) * kPartStride + ((lane >> 3) & 1) * 8);
    float odd[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0f;
    const auto add = [&](int step, float(&to)[2][4]) {
      uint32_t a[4], b[4];
      LoadMatrix4(q + step * 32, a);
      LoadMatrix4(k + step * 32, b);
      MmaBf16(to[0], a, b[0], b[1]);
      MmaBf16(to[1], a, b[2], b[3]);
    };
    if constexpr (fixed_steps > 0) {
#pragma unroll
      for (int step = 0; step < fixed_steps; ++step) add(step, step % 2 == 0 ? scores : odd);
    } else {
      const int steps = (width + 15) / 16;
      for (int step = 0; step < steps; step += 2) {
        add(step, scores);
        if (step + 1 < steps) add(step + 1, odd);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + n * 8 + (lane & 3) * 2 + (i & 1);
        scores[n][i] = key < count ? scores[n][i] + odd[n][i] : -INFINITY;
      }
    }
  }

  // The warp's largest score of each of its heads, for all warps.
  __device__ __forceinline__ void ShareHighs(const float (&scores)[2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = fmaxf(fmaxf(scores[0][2 * half], scores[0][2 * half + 1]),
                         fmaxf(scores[1][2 * half], scores[1][2 * half + 1]));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      if ((lane & 3) == 0) {
        reinterpret_cast<float*>(&s.highs[Head(warp >> 2, half)])[warp & 3] = high;
      }
    }
  }

  // Takes all warps' largest scores; returns the factors of what was summed before.
  __device__ __forceinline__ void TakeHighs(float (&rescale)[head_tiles][2]) {
#pragma unroll
    for (int tile = 0; tile < head_tiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 highs = s.highs[Head(tile, half)];
        const float high =
            fmaxf(fmaxf(largest[tile][half], fmaxf(highs.x, highs.y)), fmaxf(highs.z, highs.w));
        rescale[tile][half] = Exp2(largest[tile][half] - high);  // 0 at the first tile
        largest[tile][half] = high;
      }
    }
  }

  __device__ __forceinline__ void ShareWeights(const float (&scores)[2][4]) const {
    const int tile = warp >> 2, first_key = (warp & 3) * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = Head(tile, half);
      const float high = tile == 0 ? largest[0][half] : largest[head_tiles - 1][half];
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float low = Exp2(scores[n][2 * half] - high);
        const float next = Exp2(scores[n][2 * half + 1] - high);
        sum += low + next;
        const int key = first_key + n * 8 + (lane & 3) * 2;
        *reinterpret_cast<uint32_t*>(&s.weights[head * Shared::kWeightStride + key]) =
            PackBf16(low, next);
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if ((lane & 3) == 0) reinterpret_cast<float*>(&s.totals[head])[warp & 3] = sum;
    }
  }

  __device__ __forceinline__ void AddKeys(const __nv_bfloat16* keys,
                                          const float (&rescale)[head_tiles][2]) {
#pragma unroll
    for (int tile = 0; tile < head_tiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 totals = s.totals[Head(tile, half)];
        total[tile][half] = fmaf(total[tile][half], rescale[tile][half],
                                 (totals.x + totals.y) + (totals.z + totals.w));
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[tile][n][i] *= rescale[tile][i >> 1];
      }
    }
    const uint32_t w =
        SharedAddress(s.weights + (lane & 15) * Shared::kWeightStride + (lane >> 4) * 8);
    const uint32_t k = SharedAddress(keys + ((lane & 7) + ((lane >> 3) & 1) * 8) * kPartStride +
                                     (lane >> 4) * 8 + warp * 64);
#pragma unroll
    for (int step = 0; step < kPartKeys / 16; ++step) {
      uint32_t a[head_tiles][4];
#pragma unroll
      for (int tile = 0; tile < head_tiles; ++tile) {
        LoadMatrix4(w + tile * 16 * Shared::kWeightStride * 2 + step * 32, a[tile]);
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t b[4];
        LoadMatrix4Transposed(k + step * 16 * kPartStride * 2 + pair * 32, b);
#pragma unroll
        for (int tile = 0; tile < head_tiles; ++tile) {
          MmaBf16(sums[tile][2 * pair], a[tile], b[0], b[1]);
          MmaBf16(sums[tile][2 * pair + 1], a[tile], b[2], b[3]);
        }
      }
    }
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_STEP_PART_CUH_
