// Products of many rows on Hopper (sm_90a) with SwiGLU: y = silu(x Gate^T) * (x Up^T). Gates and
// ups are never written. A sum is added 16 products at a time in ascending order, so a row's bits
// do not depend on its tile or place.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

inline constexpr int kDenseTokenTile = 176;  // rows of x of a tile
inline constexpr int kDenseMatrixTile = 128;
struct DenseHopperParams {
  TensorMap x;       // [rows, in_features], boxes of half a tile's rows
  TensorMap matrix;  // boxes of 128 rows: 8 gates and their 8 ups, eight times
  TensorMap y;       // boxes of 64 features and a tile's rows
  int matrix_rows = 0;
  int depth_blocks = 0;    // of 64 channels
  int feature_groups = 0;  // of a cluster's matrix rows
  int token_tiles = 0;
};
static_assert(sizeof(DenseHopperParams) <= 4096);

cudaError_t LaunchDenseHopperKernel(const DenseHopperParams& params, int clusters,
                                    cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_H_
