// Products of decoding: few rows, so that reading the weights is what counts. One kernel for
// Hopper and one for all other cards; an order of sums each, whatever the number of rows.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_H_

#include <cuda_runtime.h>

#include <span>

#include "kernels/cuda/device_params.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/step_product_plan.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

// The short convolution of a step's rows, sequences of one row each.
struct StepConvolution {
  int channels = 0;               // a multiple of 8
  const float* weight = nullptr;  // device [channels, 4]; it and all below are aligned to 16 bytes
  __nv_bfloat16* y = nullptr;
  int64_t y_stride = 0;
  const float* tails_in[kStepRowsMax] = {};  // device [channels, 3] or nullptr: zeros
  float* tails_out[kStepRowsMax] = {};       // device [channels, 3], may equal tails_in, or nullptr
};

// y[rows, out] = x[rows, in] w[out, in]^T (+ bias) (+ y), rounded once. Device pointers.
struct StepProduct {
  const __nv_bfloat16* w = nullptr;    // dense, aligned to 16 bytes
  const TensorMap* w_boxes = nullptr;  // of w, see MakeStepBoxes; for Hopper
  int64_t out_features = 0;
  int64_t in_features = 0;      // a multiple of 8
  DeviceRows x;                 // not vectorized: aligned to 2 bytes is enough
  const float* bias = nullptr;  // [out] or nullptr
  void* y = nullptr;            // bf16 or f32; of the latter if y_is_f32
  int64_t y_stride = 0;         // elements
  bool y_is_f32 = false;
  bool accumulate = false;
  // y[rows, out / 2] = silu(gates) * ups, each rounded to bf16 first: the first and the second half
  // of the weight's rows. No bias, y is bf16, nothing is accumulated; cards with clusters only.
  bool swiglu = false;
  // The first columns go, rounded to bf16, through the short convolution instead of to y; row i is
  // of sequence i. The same conditions, at most kStepRowsMax rows and one such product a launch.
  const StepConvolution* convolution = nullptr;

  __host__ __device__ int y_features() const {
    return static_cast<int>(swiglu ? out_features / 2 : out_features);
  }
};

inline constexpr int kStepProductsMax = 4;  // in one launch

// The boxes that the copy engine brings w in.
Status MakeStepBoxes(const void* w, int64_t out_features, int64_t in_features, TensorMap* out);

// 1 to kStepProductsMax products of the same rows, none of which reads or writes what another
// writes. Their bits do not depend on which of them run together.
Status RunStepProducts(std::span<const StepProduct> products, int64_t rows,
                       const DeviceTraits& traits, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_H_
