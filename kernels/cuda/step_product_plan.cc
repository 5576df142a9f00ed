#include "kernels/cuda/step_product_plan.h"

#include <algorithm>

namespace deltafill::kernels::cuda {

StepProductPlan PlanStepProduct(int64_t out_features, int64_t in_features,
                                const DeviceTraits& traits) {
  StepProductPlan plan;
  plan.chunks = static_cast<int>((in_features + kStepChunk - 1) / kStepChunk);
  const int64_t tiles = (out_features + 127) / 128;
  const int64_t most = 2 * int64_t{traits.multiprocessors};
  while ((2 << plan.parts_log2) <= std::min(kStepPartsMax, plan.chunks) &&
         (tiles << (plan.parts_log2 + 1)) <= most) {
    ++plan.parts_log2;
  }
  return plan;
}

}  // namespace deltafill::kernels::cuda
