// Checks of the latent attention operators' params, as validate.h's.
#ifndef DELTAFILL_KERNELS_CPU_LATENT_VALIDATION_H_
#define DELTAFILL_KERNELS_CPU_LATENT_VALIDATION_H_

#include "kernels/cpu/latent_projection.h"
#include "kernels/latent_attention.h"
#include "kernels/status.h"

namespace deltafill::kernels::cpu {

// Of a head's parts, of the rank, and of the number of heads.
inline constexpr int kLatentDimMax = 1 << 16;
inline constexpr int kLatentHeadsMax = 1 << 12;

Status ValidateShape(const LatentShape& shape);
Status Validate(const LatentAppendParams& params);

// `projection` is set to params' projection as this backend's type, when OK.
Status Validate(const LatentPrefillParams& params, const CpuLatentProjection** projection);
Status Validate(const LatentStepParams& params, const CpuLatentProjection** projection);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_LATENT_VALIDATION_H_
