// Prefill attention for sm_90a and heads of 128 + 64 with values of 128, by WGMMA on tiles that the
// copy engine brings in. A CTA has 128 rows of one head, a warpgroup 64 of them; tiles of 128 keys
// are walked at absolute positions, and which tiles a row sees depends on its position alone.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/tensor_map.h"
#include "kernels/latent_attention.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

inline constexpr int kLatentHopperRows = 128;  // of a CTA; also keys of a tile

bool ServesLatentHopper(const LatentShape& shape, int major, int minor);

// A chunk of keys for the rows of one sequence, as LatentChunkParams.
struct LatentHopperChunk {
  LatentShape shape;
  float scale_log2 = 0.0f;
  const __nv_bfloat16* expanded = nullptr;  // [chunk tokens, heads * 256]: 128 of k, 128 of v
  const __nv_bfloat16* rope = nullptr;      // [chunk tokens, 64]
  int64_t chunk_begin = 0;                  // position, a multiple of 128
  int64_t chunk_end = 0;                    // position after the last token there is
  const __nv_bfloat16* q = nullptr;
  int64_t q_stride = 0;
  __nv_bfloat16* o = nullptr;
  int64_t o_stride = 0;
  int64_t rows = 0;
  int64_t first_token = 0;    // position of the first row; a multiple of 64
  int64_t first_panel = 0;    // of 64 rows: the first with a key in the chunk
  float* sums = nullptr;      // [heads, padded rows, 128]: unnormalised, across chunks
  float2* softmax = nullptr;  // [heads, padded rows]: largest score and sum so far
};
// Rows that sums and softmax have for each head.
constexpr int64_t LatentHopperPaddedRows(int64_t rows) {
  return (rows + kLatentHopperRows - 1) / kLatentHopperRows * kLatentHopperRows;
}

Status LaunchLatentHopper(const LatentHopperChunk& chunk, cudaStream_t stream);

struct LatentHopperParams {
  TensorMap q;         // [rows, heads * 192] in boxes of 128 rows
  TensorMap expanded;  // [chunk tokens, heads * 256], likewise
  TensorMap rope;      // [chunk tokens, 64], likewise
  LatentHopperChunk chunk;
};
cudaError_t LaunchLatentHopperKernel(const LatentHopperParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_H_
