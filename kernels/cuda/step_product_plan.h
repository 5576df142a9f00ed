// Plans of decoding's matrix products, without CUDA calls: how the weight's rows and the sum over
// its columns are shared out. A plan depends on the weight's shape and the device, never on the
// number of rows of x: that is why a row's bits do not depend on the batch.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PLAN_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PLAN_H_

#include <cstdint>

#include "kernels/cuda/plan.h"

namespace deltafill::kernels::cuda {

inline constexpr int kStepRowsMax = 64;  // rows of x a launch
inline constexpr int kStepChunk = 256;   // columns of the weight between two barriers
inline constexpr int kStepPartsMax = 8;

// Part p of a sum adds chunks [p * chunks / parts, (p + 1) * chunks / parts) one after the other;
// the parts' sums are added in their order.
struct StepProductPlan {
  int chunks = 0;
  int parts_log2 = 0;  // of at most kStepPartsMax and `chunks` parts
};

// As many parts as 128 features each, two a multiprocessor, can still run at once.
StepProductPlan PlanStepProduct(int64_t out_features, int64_t in_features,
                                const DeviceTraits& traits);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PLAN_H_
