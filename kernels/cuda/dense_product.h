// Host side of dense_hopper.h.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_DENSE_PRODUCT_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/dense_hopper.h"
#include "kernels/cuda/plan.h"
#include "kernels/tensor.h"

namespace deltafill::kernels::cuda {

// bf16 rows and matrix, aligned to 16 bytes, strides too.
struct DenseProduct {
  DenseKind kind = DenseKind::kSwiGlu;
  const void* w = nullptr;  // [matrix_rows, in_features], dense; kSwiGlu: gates, then as many ups
  int64_t matrix_rows = 0;  // kSwiGlu: a multiple of 16
  int64_t in_features = 0;
  ConstRows x;    // [rows, in_features]
  MutableRows y;  // [rows, matrix_rows], kSwiGlu: [rows, matrix_rows / 2]
  int64_t rows = 0;

  // kConv: y's first `channels` columns are written only in three rows each from kept[i] on; their
  // convolution, as if the rows were one sequence after zeros, is.
  int64_t channels = 0;                // a multiple of 128
  const float* conv_weight = nullptr;  // [channels, 4], oldest first
  std::vector<int64_t> kept;           // at most kDenseKeptMax
  MutableRows convolved;               // [rows, channels]
};

// On Hopper.
Status RunDenseProduct(const DenseProduct& product, const DeviceTraits& device,
                       cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_PRODUCT_H_
