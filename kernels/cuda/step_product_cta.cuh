// Which product of a launch of several a CTA works for.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_CTA_CUH_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_CTA_CUH_

#include "kernels/cuda/step_product.h"

namespace deltafill::kernels::cuda {

// `params` has `count` products, each with CTAs from first_cta on. `cta` becomes the CTA's number
// in its product.
template <typename Params>
__device__ __forceinline__ const auto& ProductOfCta(const Params& params, int* cta) {
  int index = 0;
#pragma unroll
  for (int i = 1; i < kStepProductsMax; ++i) {
    if (i < params.count && static_cast<int>(blockIdx.x) >= params.products[i].first_cta) index = i;
  }
  *cta = static_cast<int>(blockIdx.x) - params.products[index].first_cta;
  return params.products[index];
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_CTA_CUH_
