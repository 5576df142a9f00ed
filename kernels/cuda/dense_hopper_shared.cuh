// Shared memory of the dense product's CTA, its tiles and their order.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_SHARED_CUH_

#include "kernels/cuda/dense_hopper.h"
#include "kernels/cuda/product_stages.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kDenseCluster = 2;  // CTAs that share a tile of rows
inline constexpr int kDenseTokenBytes = kDenseTokenTile * 128;
static_assert(kDenseMatrixTile == kProductMatrixRows);

struct alignas(1024) DenseShared {
  uint8_t matrix[kProductStages][kProductMatrixBytes];
  uint8_t tokens[kProductStages][kDenseTokenBytes];
  uint8_t outputs[2][kDenseTokenBytes];  // of a multiplying warpgroup
  ProductBarriers barriers;

  __device__ __forceinline__ uint32_t Matrix(int stage) const {
    return SharedAddress(matrix[stage]);
  }
  __device__ __forceinline__ uint32_t Rows(int stage) const { return SharedAddress(tokens[stage]); }
};
static_assert(sizeof(DenseShared) <= 227 * 1024);

struct DenseTile {
  int matrix_tile = 0;  // of the cluster's first CTA
  int first_token = 0;
};

// Bands of 8 token tiles by all groups of features: what runs at one time reads few rows of either.
template <DenseKind kind>
__device__ __forceinline__ DenseTile DenseTileOf(const DenseHopperParams& p, int index) {
  constexpr int kBand = 8;
  const int band = index / (kBand * p.feature_groups);
  const int of_band = index - band * kBand * p.feature_groups;
  const int width = min(kBand, p.token_tiles - band * kBand);
  const int token_tile = band * kBand + of_band % width;
  const int first = kind == DenseKind::kConv ? token_tile * kDenseConvStep - kDenseLookBack
                                             : token_tile * kDenseTokenTile;
  return {of_band / width * kDenseCluster, first};
}

// Halves of 64 rows that a tile of the matrix has.
__device__ __forceinline__ int DenseHalves(const DenseHopperParams& p, int matrix_tile) {
  return max(0, min(2, (p.matrix_rows - matrix_tile * kDenseMatrixTile + 63) / 64));
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_SHARED_CUH_
