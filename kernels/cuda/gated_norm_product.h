// Host side of gated_norm_hopper.h.
#ifndef DELTAFILL_KERNELS_CUDA_GATED_NORM_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_GATED_NORM_PRODUCT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/plan.h"
#include "kernels/tensor.h"

namespace deltafill::kernels::cuda {

// bf16 rows and matrix, aligned to 16 bytes, strides too.
struct GatedNormProduct {
  ConstRows z;              // [rows, 128]
  const void* w = nullptr;  // [features, 128], dense
  int64_t features = 0;     // a multiple of 128
  ConstRows o;              // [rows, features], normed over each 128
  MutableRows y;            // [rows, features], may be o
  int64_t rows = 0;
  const float* norm_weight = nullptr;  // [128]
  const float* bias = nullptr;         // [features] or nullptr, of the gates
  float eps = 0.0f;
};

// Whether the card and the shape are served; of nothing else, so that bits are the same in all
// calls.
bool ServesGatedNorm(const DeviceTraits& device, int64_t norm_width, int64_t out_features,
                     int64_t in_features);
Status RunGatedNormProduct(const GatedNormProduct& product, const DeviceTraits& device,
                           cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GATED_NORM_PRODUCT_H_
