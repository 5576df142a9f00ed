// The kernels of decoding's products and what they are given.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_KERNELS_H_
#define DELTAFILL_KERNELS_CUDA_STEP_KERNELS_H_

#include <cuda_runtime.h>

#include "kernels/cuda/step_product.h"
#include "kernels/cuda/step_product_plan.h"

namespace deltafill::kernels::cuda {

struct PlannedProduct {
  StepProduct product;
  int first_cta = 0;
  int chunks = 0;
  int parts_log2 = 0;
};

struct StepKernelParams {
  PlannedProduct products[kStepProductsMax];
  int count = 0;
  int rows = 0;
  int ctas = 0;
  int cluster = 1;  // the largest number of parts
};

// Up to kStepFewRows rows: the parts of a sum are warps of one CTA, which has 128 / parts features.
inline constexpr int kStepFewRows = 8;
cudaError_t LaunchFewRows(const StepKernelParams& params, cudaStream_t stream);

// Up to kStepRowsMax rows, on cards of compute capability 9.0: the parts of a sum are CTAs of a
// cluster, each with 128 features.
cudaError_t LaunchManyRows(const StepKernelParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_KERNELS_H_
