// The router's product with the accuracy of fp32 on the matrix units: a weight
// is the exact sum of three bf16 numbers, and sums of 32 channels are added up
// in fp32, because the units' own sums are cut, not rounded.
#include "kernels/cuda/mixture_routing.h"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kTileExperts = 64, kDepth = 32;  // of a CTA
constexpr int kStride = kDepth + 8;            // rows 16 bytes apart modulo 128
constexpr int kParts = 3;                      // of a weight, the smallest first

// A warp has row_tiles times 16 rows: two share what is read of the weights.
template <int warps, int row_tiles>
struct Tile {
  static constexpr int kThreads = warps * 32, kWarpRows = row_tiles * 16;
  static constexpr int kRows = warps * kWarpRows;
  static constexpr int kRowPieces = kRows * kDepth / 8 / kThreads;  // of a thread
  static constexpr int kWeightPieces = kTileExperts * kDepth / 4 / kThreads;

  alignas(16) __nv_bfloat16 x[kRows * kStride];
  alignas(16) __nv_bfloat16 parts[kParts][kTileExperts * kStride];

  // A thread's share of the next `kDepth` channels.
  struct Fetched {
    uint4 x[kRowPieces];
    float4 weights[kWeightPieces];
  };

  static __device__ __forceinline__ Fetched Fetch(const MixtureRouting& p, int first_row,
                                                  int first_expert, int channel) {
    const int hidden = static_cast<int>(p.shape.hidden);
    Fetched f;
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) {
      const int piece = i * kThreads + threadIdx.x;
      const int row = first_row + piece / 4, at = channel + piece % 4 * 8;
      f.x[i] = row < p.rows && at < hidden
                   ? *reinterpret_cast<const uint4*>(p.x + row * p.x_stride + at)
                   : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kWeightPieces; ++i) {
      const int piece = i * kThreads + threadIdx.x;
      const int expert = first_expert + piece / 8, at = channel + piece % 8 * 4;
      f.weights[i] = expert < p.shape.experts && at < hidden
                         ? *reinterpret_cast<const float4*>(
                               p.router + static_cast<int64_t>(expert) * hidden + at)
                         : make_float4(0, 0, 0, 0);
    }
    return f;
  }

  __device__ __forceinline__ void Keep(const Fetched& f) {
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) {
      const int piece = i * kThreads + threadIdx.x;
      *reinterpret_cast<uint4*>(&x[piece / 4 * kStride + piece % 4 * 8]) = f.x[i];
    }
#pragma unroll
    for (int i = 0; i < kWeightPieces; ++i) {
      const int piece = i * kThreads + threadIdx.x;
      float4 rest = f.weights[i];
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
        const uint32_t low = PackBf16(rest.x, rest.y), high = PackBf16(rest.z, rest.w);
        *reinterpret_cast<uint2*>(&parts[part][piece / 8 * kStride + piece % 8 * 4]) =
            make_uint2(low, high);
        rest.x -= LowBf16(low);
        rest.y -= HighBf16(low);
        rest.z -= LowBf16(high);
        rest.w -= HighBf16(high);
      }
    }
  }

  // sums[16 rows, 64 experts] of the warp's row tiles.
  using Sums = float[row_tiles][kTileExperts / 8][4];
  __device__ __forceinline__ void Multiply(Sums& sums) const {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t row =
        SharedAddress(x + (warp * kWarpRows + (lane & 15)) * kStride + (lane >> 4) * 8);
    const int column = ((lane & 7) + (lane >> 4) * 8) * kStride + ((lane >> 3) & 1) * 8;
    Sums chunk = {};
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      uint32_t a[row_tiles][4];
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile) {
        LoadMatrix4(row + tile * 16 * kStride * 2 + step * 32, a[tile]);
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int pair = 0; pair < kTileExperts / 16; ++pair) {
          uint32_t b[4];
          LoadMatrix4(SharedAddress(parts[part] + column) + pair * 16 * kStride * 2 + step * 32, b);
#pragma unroll
          for (int tile = 0; tile < row_tiles; ++tile) {
            MmaBf16(chunk[tile][2 * pair], a[tile], b[0], b[1]);
            MmaBf16(chunk[tile][2 * pair + 1], a[tile], b[2], b[3]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < row_tiles * kTileExperts / 2; ++i) {
      sums[i / (kTileExperts / 2)][i / 4 % (kTileExperts / 8)][i % 4] +=
          chunk[i / (kTileExperts / 2)][i / 4 % (kTileExperts / 8)][i % 4];
    }
  }
};

template <typename RouterTile>
__global__ void __launch_bounds__(RouterTile::kThreads)
    LogitsKernel(const __grid_constant__ MixtureRouting p) {
  __shared__ RouterTile tile;
  const int first_row = blockIdx.x * RouterTile::kRows, first_expert = blockIdx.y * kTileExperts;
  const int hidden = static_cast<int>(p.shape.hidden);
  typename RouterTile::Sums sums = {};
  auto next = RouterTile::Fetch(p, first_row, first_expert, 0);
  for (int channel = 0; channel < hidden; channel += kDepth) {
    __syncthreads();
    tile.Keep(next);
    __syncthreads();
    next = RouterTile::Fetch(p, first_row, first_expert, channel + kDepth);
    tile.Multiply(sums);
  }
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < RouterTile::kWarpRows / 8; ++i) {
    const int64_t row = first_row + warp * RouterTile::kWarpRows + i * 8 + (lane >> 2);
    if (row >= p.rows) break;
#pragma unroll
    for (int n = 0; n < kTileExperts / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int expert = first_expert + n * 8 + (lane & 3) * 2 + j;
        if (expert >= p.shape.experts) continue;
        p.logits[row * p.shape.experts + expert] = sums[i >> 1][n][(i & 1) * 2 + j];
      }
    }
  }
}

constexpr int kStepThreads = 256;
constexpr int kStepRows = 8;  // of a CTA; a warp has one expert

__global__ void __launch_bounds__(kStepThreads)
    StepLogitsKernel(const __grid_constant__ MixtureRouting p) {
  const int lane = threadIdx.x & 31;
  const int expert = blockIdx.x * (kStepThreads / 32) + (threadIdx.x >> 5);
  const int first_row = blockIdx.y * kStepRows, rows = min(p.rows - first_row, kStepRows);
  if (expert >= p.shape.experts) return;
  const int hidden = static_cast<int>(p.shape.hidden);
  const float* const router = p.router + static_cast<int64_t>(expert) * hidden;
  float sums[kStepRows] = {};
  for (int channel = lane * 8; channel < hidden; channel += 32 * 8) {
    const float4 low = *reinterpret_cast<const float4*>(router + channel);
    const float4 high = *reinterpret_cast<const float4*>(router + channel + 4);
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) {
      if (i >= rows) break;
      const uint4 x = *reinterpret_cast<const uint4*>(p.x + (first_row + i) * p.x_stride + channel);
      sums[i] = fmaf(LowBf16(x.x), low.x, sums[i]);
      sums[i] = fmaf(HighBf16(x.x), low.y, sums[i]);
      sums[i] = fmaf(LowBf16(x.y), low.z, sums[i]);
      sums[i] = fmaf(HighBf16(x.y), low.w, sums[i]);
      sums[i] = fmaf(LowBf16(x.z), high.x, sums[i]);
      sums[i] = fmaf(HighBf16(x.z), high.y, sums[i]);
      sums[i] = fmaf(LowBf16(x.w), high.z, sums[i]);
      sums[i] = fmaf(HighBf16(x.w), high.w, sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kStepRows; ++i) {
    if (i >= rows) break;
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      sums[i] += __shfl_xor_sync(~0u, sums[i], offset);
    }
    if (lane == 0)
      p.logits[static_cast<int64_t>(first_row + i) * p.shape.experts + expert] = sums[i];
  }
}

unsigned Ceil(int64_t value, int64_t by) { return static_cast<unsigned>((value + by - 1) / by); }

}  // namespace

cudaError_t LaunchRouterLogits(const MixtureRouting& routing, bool step, cudaStream_t stream) {
  using SmallTile = Tile<4, 1>;
  using LargeTile = Tile<4, 2>;
  constexpr int kFewRows = 4096;  // that large tiles would leave units idle
  const int experts = routing.shape.experts, rows = routing.rows;
  if (step) {
    const dim3 grid(Ceil(experts, kStepThreads / 32), Ceil(rows, kStepRows));
    StepLogitsKernel<<<grid, kStepThreads, 0, stream>>>(routing);
  } else if (rows <= kFewRows) {
    const dim3 grid(Ceil(rows, SmallTile::kRows), Ceil(experts, kTileExperts));
    LogitsKernel<SmallTile><<<grid, SmallTile::kThreads, 0, stream>>>(routing);
  } else {
    const dim3 grid(Ceil(rows, LargeTile::kRows), Ceil(experts, kTileExperts));
    LogitsKernel<LargeTile><<<grid, LargeTile::kThreads, 0, stream>>>(routing);
  }
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
