// Host side of dense_hopper.h.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_DENSE_PRODUCT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/plan.h"
#include "kernels/tensor.h"

namespace deltafill::kernels::cuda {

// bf16 rows and matrix, aligned to 16 bytes, strides too.
struct DenseProduct {
  const void* w = nullptr;  // [matrix_rows, in_features], dense: gates, then as many ups
  int64_t matrix_rows = 0;  // a multiple of 16
  int64_t in_features = 0;
  ConstRows x;    // [rows, in_features]
  MutableRows y;  // [rows, matrix_rows / 2]
  int64_t rows = 0;
};

// Whether the card is served; of nothing else, so that bits are the same in all calls.
bool ServesDense(const DeviceTraits& device);
Status RunDenseProduct(const DenseProduct& product, const DeviceTraits& device,
                       cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_PRODUCT_H_
