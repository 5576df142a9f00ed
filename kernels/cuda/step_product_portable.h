// The kernel of decoding's products that every card has, and what it is given.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PORTABLE_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PORTABLE_H_

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
};

// Up to kPortableStepRows rows: the parts of a sum are warps of one CTA, which has 128 / parts
// features.
inline constexpr int kPortableStepRows = 8;
cudaError_t LaunchPortableStep(const StepKernelParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PORTABLE_H_
