// Where a position's latents are.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_PAGES_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_PAGES_H_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/latent_attention.h"

namespace deltafill::kernels::cuda {

inline __nv_bfloat16* LatentRowOf(const LatentSequence& sequence, int64_t token, int64_t width) {
  void* const page = sequence.pages[static_cast<size_t>(token / kLatentPageTokens)];
  return static_cast<__nv_bfloat16*>(page) + token % kLatentPageTokens * width;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_PAGES_H_
