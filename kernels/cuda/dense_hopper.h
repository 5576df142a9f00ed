// Products of many rows on Hopper (sm_90a) with what follows them at once. A sum is added 16
// products at a time in ascending order, so a row's bits do not depend on its tile or place.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

enum class DenseKind {
  kSwiGlu,  // y = silu(x Gate^T) * (x Up^T): gates and ups are never written
  kConv,    // the first columns are the input of a short convolution and written convolved
};

inline constexpr int kDenseTokenTile = 176;  // rows of x of a tile
inline constexpr int kDenseMatrixTile = 128;
// Convolving tiles overlap by the rows that the convolution looks back.
inline constexpr int kDenseLookBack = 3;
inline constexpr int kDenseConvStep = kDenseTokenTile - kDenseLookBack;
inline constexpr int kDenseKeptMax = 64;

struct DenseConv {
  TensorMap y;                    // [rows, channels], boxes of kDenseConvStep rows
  const float* weight = nullptr;  // [channels, 4], oldest first
  int matrix_tiles = 0;           // of channels
  // Three rows each from kept[i] on of what the convolution reads are written, too.
  __nv_bfloat16* before = nullptr;
  int64_t before_stride = 0;
  int rows = 0;
  int kept_count = 0;
  int kept[kDenseKeptMax] = {};
};

struct DenseHopperParams {
  TensorMap x;       // [rows, in_features], boxes of half a tile's rows
  TensorMap matrix;  // boxes of 128 rows: 64 features, or 8 gates and their 8 ups, eight times
  TensorMap y;       // boxes of 64 features and a tile's rows (kConv: kDenseConvStep)
  int matrix_rows = 0;
  int depth_blocks = 0;    // of 64 channels
  int feature_groups = 0;  // of a cluster's matrix rows
  int token_tiles = 0;
  DenseConv conv;  // kConv
};
static_assert(sizeof(DenseHopperParams) <= 4096);

cudaError_t LaunchDenseHopperKernel(const DenseHopperParams& params, DenseKind kind, int clusters,
                                    cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_HOPPER_H_
