// Plans of decoding's matrix products, without CUDA calls: how the weight's rows and the sum over
// its columns are shared out. The order of sums depends on the weight's shape and the device, never
// on the number of rows of x: that is why a row's bits do not depend on the batch.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PLAN_H_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PLAN_H_

#include <cstdint>
#include <span>

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

// Hopper's kernel. A CTA has this many features, in two boxes, which come by as many columns.
inline constexpr int kStepCtaFeatures = 128, kStepBoxFeatures = 64;
inline constexpr int kStepBlock = 64;
// Sums are cut into parts for at most so many CTAs, and of at least so many blocks each: parts take
// time to meet.
inline constexpr int kStepCtasMost = 264, kStepPartBlocksMin = 4;

// Part p of a sum adds blocks [p * blocks / parts, (p + 1) * blocks / parts) one after the other;
// the parts' sums are added in their order. A function of the weight's shape alone.
struct StepHopperPlan {
  int tiles = 0;       // of features: CTAs a part
  int blocks = 0;      // of kStepBlock columns
  int parts_log2 = 0;  // of at most kStepPartsMax parts
};

// As many parts as about two CTAs a multiprocessor need. `swiglu`: half the features are gates.
StepHopperPlan PlanStepHopper(int64_t out_features, int64_t in_features, bool swiglu);

// Rows that are multiplied when there are `rows` of them, 1 to kStepRowsMax.
constexpr int StepRowsMultiplied(int rows) {
  if (rows <= 8) return 8;
  if (rows <= 16) return 16;
  return rows <= 32 ? 32 : 64;
}

// Short sums, of at most kStepShortBlocks blocks, end soon after they start, and what takes time is
// that their rows come, meet and go: the rows are shared out too, at least kStepGroupRows a CTA.
inline constexpr int kStepShortBlocks = 4, kStepGroupRows = 16;

// Rows that a CTA multiplies in a launch of these products of `rows` rows: StepRowsMultiplied, or,
// where all sums are short (the gates' [2048, 128] and [4096, 128]), so few that the launch still
// has at most kStepCtasMost CTAs. Shows in no bit.
int StepCtaRows(int rows, std::span<const StepHopperPlan> plans);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PLAN_H_
