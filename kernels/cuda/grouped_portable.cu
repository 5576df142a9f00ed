// A CTA has 64 rows of a tile and 128 rows of the expert's matrix; a warp has 16 of the former.
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/swiglu.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 64, kMatrixRows = 128, kDepth = 32;
constexpr int kStride = kDepth + 8;  // rows 16 bytes apart modulo 128
constexpr int kSubtiles = kTokenTileRows / kRows;

struct Stage {
  alignas(16) __nv_bfloat16 x[kRows * kStride];
  alignas(16) __nv_bfloat16 w[kMatrixRows * kStride];
};

template <bool swiglu>
struct Tile {
  static constexpr int kFeatures = swiglu ? kMatrixRows / 2 : kMatrixRows;  // of y

  const __nv_bfloat16* x;  // of the first row
  const __nv_bfloat16* w;
  int rows;
  int first_feature, out_features, in_features;

  // The matrix's row for row `i` of the tile, or -1.
  __device__ __forceinline__ int64_t MatrixRow(int i) const {
    const int feature = first_feature + i % kFeatures;
    if (feature >= out_features) return -1;
    return feature + static_cast<int64_t>(i / kFeatures) * out_features;
  }

  __device__ __forceinline__ void Load(int channel, Stage& stage) const {
    constexpr int kPieces = kDepth / 8;
    for (int i = threadIdx.x; i < (kRows + kMatrixRows) * kPieces; i += kThreads) {
      const int row = i / kPieces, column = i % kPieces * 8;
      const bool inside = channel + column < in_features;
      if (row < kRows) {
        const bool present = inside && row < rows;
        const int64_t at = static_cast<int64_t>(row) * in_features + channel + column;
        CopyAsync16(SharedAddress(&stage.x[row * kStride + column]), present ? x + at : x, present);
        continue;
      }
      const int64_t matrix_row = MatrixRow(row - kRows);
      const bool present = inside && matrix_row >= 0;
      const int64_t at = matrix_row * in_features + channel + column;
      CopyAsync16(SharedAddress(&stage.w[(row - kRows) * kStride + column]), present ? w + at : w,
                  present);
    }
    CommitCopies();
  }
};

// sums[16 rows, 128 matrix rows] += of the warp.
__device__ __forceinline__ void MultiplyStage(const Stage& stage, int warp, int lane,
                                              float (&sums)[kMatrixRows / 8][4]) {
  const uint32_t x = SharedAddress(stage.x + (warp * 16 + (lane & 15)) * kStride + (lane >> 4) * 8);
  const uint32_t w =
      SharedAddress(stage.w + ((lane & 7) + (lane >> 4) * 8) * kStride + ((lane >> 3) & 1) * 8);
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    uint32_t a[4];
    LoadMatrix4(x + step * 32, a);
#pragma unroll
    for (int pair = 0; pair < kMatrixRows / 16; ++pair) {
      uint32_t b[4];
      LoadMatrix4(w + pair * 16 * kStride * 2 + step * 32, b);
      MmaBf16(sums[2 * pair], a, b[0], b[1]);
      MmaBf16(sums[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

template <bool swiglu>
__global__ void __launch_bounds__(kThreads)
    GroupedKernel(const __grid_constant__ GroupedProduct p, const __nv_bfloat16* const* matrices) {
  __shared__ Stage stages[2];
  const int token_tile = blockIdx.x / kSubtiles, subtile = blockIdx.x % kSubtiles;
  if (token_tile >= p.work->tile_count) return;
  const TokenTile list_entry = p.tiles[token_tile];
  if (subtile * kRows >= list_entry.rows) return;
  const int64_t first_row = list_entry.first_row + subtile * kRows;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int in = static_cast<int>(p.in_features), out = static_cast<int>(p.out_features);
  using GroupTile = Tile<swiglu>;
  const GroupTile tile = {p.x + first_row * in,
                          matrices[list_entry.expert],
                          min(list_entry.rows - subtile * kRows, kRows),
                          static_cast<int>(blockIdx.y) * GroupTile::kFeatures,
                          out,
                          in};
  float sums[kMatrixRows / 8][4] = {};
  tile.Load(0, stages[0]);
  for (int channel = 0, i = 0; channel < in; channel += kDepth, i ^= 1) {
    if (channel + kDepth < in) {
      tile.Load(channel + kDepth, stages[i ^ 1]);
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    MultiplyStage(stages[i], warp, lane, sums);
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + (lane >> 2) + half * 8;
    if (row >= tile.rows) continue;
    __nv_bfloat16* const y = p.y + (first_row + row) * out + tile.first_feature;
#pragma unroll
    for (int n = 0; n < GroupTile::kFeatures / 8; ++n) {
      const int feature = n * 8 + (lane & 3) * 2;
      if (tile.first_feature + feature >= out) break;
      float low = sums[n][2 * half], high = sums[n][2 * half + 1];
      if constexpr (swiglu) {
        constexpr int kUp = GroupTile::kFeatures / 8;
        low = SiluTimes(low, sums[kUp + n][2 * half]);
        high = SiluTimes(high, sums[kUp + n][2 * half + 1]);
      }
      *reinterpret_cast<uint32_t*>(y + feature) = PackBf16(low, high);
    }
  }
}

template <bool swiglu>
cudaError_t Launch(const GroupedProduct& p, const __nv_bfloat16* const* matrices,
                   cudaStream_t stream) {
  constexpr int kFeatures = Tile<swiglu>::kFeatures;
  const dim3 grid(static_cast<unsigned>(p.tiles_max * kSubtiles),
                  static_cast<unsigned>((p.out_features + kFeatures - 1) / kFeatures));
  GroupedKernel<swiglu><<<grid, kThreads, 0, stream>>>(p, matrices);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGroupedPortable(const GroupedProduct& product,
                                  const __nv_bfloat16* const* matrices, cudaStream_t stream) {
  return product.swiglu ? Launch<true>(product, matrices, stream)
                        : Launch<false>(product, matrices, stream);
}

}  // namespace deltafill::kernels::cuda
