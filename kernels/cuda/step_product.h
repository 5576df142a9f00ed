// Products of decoding: few rows, so that reading the weights is what counts. Two kernels,
// for few rows and for up to kStepRowsMax; one order of sums in both, whatever the number of rows.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_H_

#include <cuda_runtime.h>

#include <span>

#include "kernels/cuda/device_params.h"
#include "kernels/cuda/plan.h"

namespace deltafill::kernels::cuda {

// y[rows, out] = x[rows, in] w[out, in]^T (+ bias) (+ y), rounded once. Device pointers.
struct StepProduct {
  const __nv_bfloat16* w = nullptr;  // dense, aligned to 16 bytes
  int64_t out_features = 0;
  int64_t in_features = 0;      // a multiple of 8
  DeviceRows x;                 // not vectorized: aligned to 2 bytes is enough
  const float* bias = nullptr;  // [out] or nullptr
  void* y = nullptr;            // bf16 or f32; of the latter if y_is_f32
  int64_t y_stride = 0;         // elements
  bool y_is_f32 = false;
  bool accumulate = false;
};

inline constexpr int kStepProductsMax = 4;  // in one launch

// 1 to kStepProductsMax products of the same 1 to kStepRowsMax rows, none of which reads or writes
// what another writes. Their bits do not depend on which of them run together.
cudaError_t RunStepProducts(std::span<const StepProduct> products, int rows,
                            const DeviceTraits& traits, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_H_
