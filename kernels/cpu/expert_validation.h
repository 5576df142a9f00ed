// Checks of a mixture of experts' params, as validate.h's.
#ifndef DELTAFILL_KERNELS_CPU_EXPERT_VALIDATION_H_
#define DELTAFILL_KERNELS_CPU_EXPERT_VALIDATION_H_

#include "kernels/mixture_of_experts.h"
#include "kernels/status.h"

namespace deltafill::kernels::cpu {

inline constexpr int kExpertsMax = 1024;

// OK: every expert's weights are CpuWeights of the shape's sizes.
Status Validate(const MixtureParams& params);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_EXPERT_VALIDATION_H_
