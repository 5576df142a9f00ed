// What the latent attention kernels serve; shared by plans and kernels.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_LIMITS_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_LIMITS_H_

#include <cstdint>

#include "kernels/cuda/workspace_limits.h"
#include "kernels/latent_attention.h"

namespace deltafill::kernels::cuda {

inline constexpr int kLatentStepRankMax = 512;
inline constexpr int kLatentStepRopeMax = 64;
inline constexpr int kLatentStepNopeMax = 192;
inline constexpr int64_t kLatentTokensMax = int64_t{1} << 30;

// The padded dims of the prefill kernel that serves the shape; zeros if there is none.
struct LatentInstance {
  int query_dim = 0;
  int value_dim = 0;
};
LatentInstance LatentInstanceFor(const LatentShape& shape);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_LIMITS_H_
