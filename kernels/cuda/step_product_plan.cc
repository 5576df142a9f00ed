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

StepHopperPlan PlanStepHopper(int64_t out_features, int64_t in_features, bool swiglu) {
  const int64_t tile = swiglu ? kStepCtaFeatures / 2 : kStepCtaFeatures;
  const int64_t features = swiglu ? out_features / 2 : out_features;
  // Gates and ups of a warp are finished by one part.
  const int parts_max = swiglu ? kStepPartsMax / 2 : kStepPartsMax;
  StepHopperPlan plan;
  plan.tiles = static_cast<int>((features + tile - 1) / tile);
  plan.blocks = static_cast<int>((in_features + kStepBlock - 1) / kStepBlock);
  while ((2 << plan.parts_log2) <= std::min(parts_max, plan.blocks / kStepPartBlocksMin) &&
         (plan.tiles << (plan.parts_log2 + 1)) <= kStepCtasMost) {
    ++plan.parts_log2;
  }
  return plan;
}

// Groups of rows and clusters of parts never meet.
static_assert(kStepShortBlocks < 2 * kStepPartBlocksMin);

int StepCtaRows(int rows, std::span<const StepHopperPlan> plans) {
  int cta_rows = StepRowsMultiplied(rows), ctas = 0;
  for (const StepHopperPlan& plan : plans) {
    if (plan.blocks > kStepShortBlocks) return cta_rows;
    ctas += plan.tiles << plan.parts_log2;
  }
  const auto groups = [&](int of_rows) { return (rows + of_rows - 1) / of_rows; };
  while (cta_rows > kStepGroupRows && ctas * groups(cta_rows / 2) <= kStepCtasMost) cta_rows /= 2;
  return cta_rows;
}

}  // namespace deltafill::kernels::cuda
