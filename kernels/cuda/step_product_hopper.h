// Params of decoding's product kernel for sm_90a.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_HOPPER_H_

#include "kernels/cuda/step_product.h"
#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

struct StepHopperProduct {
  TensorMap weight;  // [out_features, in_features] in boxes of kStepBoxFeatures
  TensorMap x;       // [rows, in_features] in boxes of cta_rows; if vectorized
  StepProduct product;
  int first_cta = 0;
  int blocks = 0;  // of kStepBlock columns
  int parts_log2 = 0;
};

struct StepHopperParams {
  StepHopperProduct products[kStepProductsMax];
  int count = 0;
  int rows = 0;
  int cta_rows = 0;  // that a CTA multiplies: 8, 16, 32 or 64; more are groups in the grid's y
  int ctas = 0;      // for each group of rows
  int cluster = 1;   // the largest number of parts
  StepConvolution convolution;
};
static_assert(sizeof(StepHopperParams) <= 4096);

// Up to kStepRowsMax rows: the parts of a sum are CTAs of a cluster, each with kStepCtaFeatures
// features.
cudaError_t LaunchStepHopper(const StepHopperParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_HOPPER_H_
