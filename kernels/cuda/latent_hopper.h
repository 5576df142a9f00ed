// Prefill attention for sm_90a and heads of 128 + 64 with values of 128, by WGMMA on tiles that the
// copy engine brings in. A CTA has 128 rows of one head, a warpgroup 64 of them; tiles of 128 keys
// are walked at absolute positions, and which tiles a row sees depends on its position alone.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/latent.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/latent_attention.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

inline constexpr int kLatentHopperRows = 128;  // of a CTA; also keys of a tile

bool ServesLatentHopper(const LatentShape& shape, int major, int minor);

// Rows that a chunk's sums and softmax have for each head.
constexpr int64_t LatentHopperPaddedRows(int64_t rows) {
  return (rows + kLatentHopperRows - 1) / kLatentHopperRows * kLatentHopperRows;
}

// A chunk starts at a multiple of 128 and may have several pages' keys; its latents are not read,
// but `rope`, [chunk tokens, 64]: what follows the rank of each.
Status LaunchLatentHopper(const LatentChunkParams& chunk, const __nv_bfloat16* rope,
                          cudaStream_t stream);

struct LatentHopperParams {
  TensorMap q;         // [rows, heads * 192] in boxes of 128 rows
  TensorMap expanded;  // [chunk tokens, heads * 256], likewise
  TensorMap rope;      // [chunk tokens, 64], likewise
  LatentChunkParams chunk;
};
cudaError_t LaunchLatentHopperKernel(const LatentHopperParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_H_
