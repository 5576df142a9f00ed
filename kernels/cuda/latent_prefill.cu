// Prefill attention over one chunk of keys and values. A CTA has a panel of 64 rows of one head, a
// warp 16 of them; it walks key tiles of 64 at absolute positions, so a row's bits are those of its
// own walk from token 0, whatever the chunks are.
#include "kernels/cuda/latent.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/tensor.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kPanel = 64;  // query rows, and keys of a tile
constexpr int kWarps = 4;
static_assert(kBlockTokens == kPanel);

template <int query_dim, int value_dim>
struct AttendShared {
  static constexpr int kQueryStride = query_dim + 8;  // rows 16 bytes apart modulo 128
  static constexpr int kValueStride = value_dim + 8;
  alignas(16) __nv_bfloat16 q[kPanel * kQueryStride];
  alignas(16) __nv_bfloat16 k[kPanel * kQueryStride];
  alignas(16) __nv_bfloat16 v[kPanel * kValueStride];
};

// `rows` rows of `width` elements; other rows and columns up to `padded` become zeros.
__device__ __forceinline__ void LoadRows(const __nv_bfloat16* from, int64_t stride, int rows,
                                         int width, int padded, __nv_bfloat16* to, int to_stride) {
  const int pieces = padded / 8;
  for (int i = threadIdx.x; i < kPanel * pieces; i += kWarps * 32) {
    const int row = i / pieces, column = i % pieces * 8;
    const bool present = row < rows && column < width;
    const __nv_bfloat16* const source = present ? from + row * stride + column : from;
    CopyAsync16(SharedAddress(to + row * to_stride + column), source, present);
  }
}

// A warp's 16 rows: softmax so far and unnormalised sums, in the layout of product accumulators.
template <int query_dim, int value_dim>
struct AttendRows {
  using Shared = AttendShared<query_dim, value_dim>;
  static constexpr int kValueTiles = value_dim / 8;

  float sums[kValueTiles][4];
  float largest[2], total[2];  // of rows lane / 4 and lane / 4 + 8

  // Scores of one key tile; masked: only keys up to the row's own.
  __device__ __forceinline__ void Score(const Shared& s, int warp, int lane, bool masked,
                                        float scale, float (&scores)[8][4]) const {
    const uint32_t q =
        SharedAddress(s.q + (warp * 16 + (lane & 15)) * Shared::kQueryStride + (lane >> 4) * 8);
    const uint32_t k = SharedAddress(s.k + ((lane & 7) + (lane >> 4) * 8) * Shared::kQueryStride +
                                     ((lane >> 3) & 1) * 8);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < query_dim / 16; ++step) {
      uint32_t a[4];
      LoadMatrix4(q + step * 32, a);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t b[4];
        LoadMatrix4(k + pair * 16 * Shared::kQueryStride * 2 + step * 32, b);
        MmaBf16(scores[2 * pair], a, b[0], b[1]);
        MmaBf16(scores[2 * pair + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp * 16 + (lane >> 2) + (i >> 1) * 8;
        const int key = n * 8 + (lane & 3) * 2 + (i & 1);
        scores[n][i] = masked && key > row ? -INFINITY : scores[n][i] * scale;
      }
    }
  }

  // Scores become weights; sums and totals are rescaled to the new largest score.
  __device__ __forceinline__ void Soften(float (&scores)[8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = largest[half];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        high = fmaxf(high, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      }
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      const float rescale = Exp2(largest[half] - high);  // 0 at the first tile
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = Exp2(scores[n][i] - high);
          sum += scores[n][i];
        }
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      total[half] = fmaf(total[half], rescale, sum);
      largest[half] = high;
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
        sums[n][2 * half] *= rescale;
        sums[n][2 * half + 1] *= rescale;
      }
    }
  }

  __device__ __forceinline__ void AddValues(const Shared& s, int lane,
                                            const float (&weights)[8][4]) {
    const uint32_t v = SharedAddress(
        s.v + ((lane & 7) + ((lane >> 3) & 1) * 8) * Shared::kValueStride + (lane >> 4) * 8);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const float(&low)[4] = weights[2 * step];
      const float(&high)[4] = weights[2 * step + 1];
      const uint32_t a[4] = {PackBf16(low[0], low[1]), PackBf16(low[2], low[3]),
                             PackBf16(high[0], high[1]), PackBf16(high[2], high[3])};
#pragma unroll
      for (int pair = 0; pair < kValueTiles / 2; ++pair) {
        uint32_t b[4];
        LoadMatrix4Transposed(v + step * 16 * Shared::kValueStride * 2 + pair * 32, b);
        MmaBf16(sums[2 * pair], a, b[0], b[1]);
        MmaBf16(sums[2 * pair + 1], a, b[2], b[3]);
      }
    }
  }
};

// What is carried from chunk to chunk.
template <int query_dim, int value_dim, bool store>
__device__ __forceinline__ void MoveCarried(const LatentChunkParams& p, int64_t row, int lane,
                                            AttendRows<query_dim, value_dim>& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t at = row + (lane >> 2) + half * 8;
    float2* const softmax = p.softmax + at;
    if constexpr (store) {
      if ((lane & 3) == 0) *softmax = make_float2(rows.largest[half], rows.total[half]);
    } else {
      rows.largest[half] = softmax->x;
      rows.total[half] = softmax->y;
    }
#pragma unroll
    for (int n = 0; n < value_dim / 8; ++n) {
      float2* const sums =
          reinterpret_cast<float2*>(p.sums + at * value_dim + n * 8 + (lane & 3) * 2);
      if constexpr (store) {
        *sums = make_float2(rows.sums[n][2 * half], rows.sums[n][2 * half + 1]);
      } else {
        rows.sums[n][2 * half] = sums->x;
        rows.sums[n][2 * half + 1] = sums->y;
      }
    }
  }
}

template <int query_dim, int value_dim>
__global__ void __launch_bounds__(kWarps * 32)
    AttendKernel(const __grid_constant__ LatentChunkParams p) {
  extern __shared__ __align__(16) uint8_t shared_bytes[];
  using Shared = AttendShared<query_dim, value_dim>;
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.y;
  // Panels with the most keys first.
  const int64_t panel = p.first_panel + (gridDim.x - 1 - blockIdx.x);
  const int64_t panels = (p.rows + kPanel - 1) / kPanel;
  const int64_t block = p.first_token + panel * kPanel;  // position of the panel's first row
  const int rows_left = static_cast<int>(min(p.rows - panel * kPanel, int64_t{kPanel}));
  const int nope = p.shape.nope_dim, head_columns = nope + p.shape.value_dim;
  const int query_width = nope + p.shape.rope_dim;
  const int64_t expanded_stride = static_cast<int64_t>(p.shape.heads) * head_columns;
  LoadRows(p.q + panel * kPanel * p.q_stride + static_cast<int64_t>(head) * query_width, p.q_stride,
           rows_left, query_width, query_dim, s.q, Shared::kQueryStride);
  AttendRows<query_dim, value_dim> rows;
  const int64_t carried = (head * panels + panel) * kPanel + warp * 16;
  if (p.chunk_begin > 0) {
    MoveCarried<query_dim, value_dim, false>(p, carried, lane, rows);
  } else {
    rows.largest[0] = rows.largest[1] = -INFINITY;
    rows.total[0] = rows.total[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < value_dim / 8; ++n) {
      rows.sums[n][0] = rows.sums[n][1] = rows.sums[n][2] = rows.sums[n][3] = 0.0f;
    }
  }
  for (int64_t key = p.chunk_begin; key < p.chunk_end && key <= block; key += kPanel) {
    const int64_t at = key - p.chunk_begin;
    const int keys = static_cast<int>(min(p.chunk_end - key, int64_t{kPanel}));
    const __nv_bfloat16* const expanded =
        p.expanded + at * expanded_stride + static_cast<int64_t>(head) * head_columns;
    const int64_t width = p.shape.rank + p.shape.rope_dim;
    LoadRows(expanded, expanded_stride, keys, nope, nope, s.k, Shared::kQueryStride);
    LoadRows(p.latents + at * width + p.shape.rank, width, keys, p.shape.rope_dim, query_dim - nope,
             s.k + nope, Shared::kQueryStride);
    LoadRows(expanded + nope, expanded_stride, keys, p.shape.value_dim, value_dim, s.v,
             Shared::kValueStride);
    CommitCopies();
    WaitCopies<0>();
    __syncthreads();
    float scores[8][4];
    rows.Score(s, warp, lane, key == block, p.scale_log2, scores);
    rows.Soften(scores);
    rows.AddValues(s, lane, scores);
    __syncthreads();
  }
  if (block >= p.chunk_end) return MoveCarried<query_dim, value_dim, true>(p, carried, lane, rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + (lane >> 2) + half * 8;
    if (row >= rows_left) continue;
    const float factor = 1.0f / rows.total[half];
    __nv_bfloat16* const o =
        p.o + (panel * kPanel + row) * p.o_stride + static_cast<int64_t>(head) * p.shape.value_dim;
#pragma unroll
    for (int n = 0; n < value_dim / 8; ++n) {
      const int column = n * 8 + (lane & 3) * 2;
      if (column >= p.shape.value_dim) break;
      *reinterpret_cast<uint32_t*>(o + column) =
          PackBf16(rows.sums[n][2 * half] * factor, rows.sums[n][2 * half + 1] * factor);
    }
  }
}

template <int query_dim, int value_dim>
cudaError_t Launch(const LatentChunkParams& p, cudaStream_t stream) {
  constexpr int kBytes = sizeof(AttendShared<query_dim, value_dim>);
  const cudaError_t error = cudaFuncSetAttribute(
      AttendKernel<query_dim, value_dim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t panels = (p.rows + kPanel - 1) / kPanel - p.first_panel;
  const dim3 grid(static_cast<unsigned>(panels), static_cast<unsigned>(p.shape.heads));
  AttendKernel<query_dim, value_dim><<<grid, kWarps * 32, kBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchLatentChunk(const LatentChunkParams& params, cudaStream_t stream) {
  const LatentInstance instance = LatentInstanceFor(params.shape);
  if (instance.query_dim == 64) return Launch<64, 64>(params, stream);
  if (instance.query_dim == 128) return Launch<128, 128>(params, stream);
  return Launch<192, 128>(params, stream);
}

}  // namespace deltafill::kernels::cuda
