// Params of decoding's product kernel for sm_90a.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_HOPPER_H_

#include "kernels/cuda/step_product.h"
#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

struct StepHopperProduct {
  TensorMap weight;  // [out_features, in_features] in boxes of kStepCtaFeatures
  TensorMap x;  // [rows, in_features] in boxes of as many rows as are multiplied; if vectorized
  StepProduct product;
  int first_cta = 0;
  int blocks = 0;  // of kStepBlock columns
  int parts_log2 = 0;
};

struct StepHopperParams {
  StepHopperProduct products[kStepProductsMax];
  int count = 0;
  int rows = 0;
  int ctas = 0;
  int cluster = 1;  // the largest number of parts
  StepConvolution convolution;
};
static_assert(sizeof(StepHopperParams) <= 4096);

// Up to kStepRowsMax rows: the parts of a sum are CTAs of a cluster, each with kStepCtaFeatures
// features.
cudaError_t LaunchStepHopper(const StepHopperParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_HOPPER_H_
