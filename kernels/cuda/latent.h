// Latent attention on a CUDA device: kernels over checked params. Queries, latents and outputs are
// bf16, softmax and sums fp32. Any card from sm_80 on.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/latent_limits.h"
#include "kernels/latent_attention.h"

namespace deltafill::kernels::cuda {

// Rows of a sequence that go to one page, one after the other.
struct LatentAppendRun {
  int64_t first_row = 0;        // of x
  __nv_bfloat16* to = nullptr;  // the page's row of the first
};
// That travel with a launch: a step's sequences have one each.
inline constexpr int kLatentAppendRuns = 64;

struct LatentAppendKernelParams {
  const __nv_bfloat16* x = nullptr;
  int64_t x_stride = 0;
  const float* norm_weight = nullptr;
  float eps = 0.0f;
  int rank = 0;
  int rope_dim = 0;
  int run_count = 0;
  int64_t end_row = 0;                      // of the last run
  LatentAppendRun runs[kLatentAppendRuns];  // each ends where the next begins
};
cudaError_t LaunchLatentAppend(const LatentAppendKernelParams& params, cudaStream_t stream);

// One chunk of keys for the panels of 64 query rows of one sequence that see any of it.
struct LatentChunkParams {
  LatentShape shape;
  float scale_log2 = 0.0f;                  // of scores, times log2 e
  const __nv_bfloat16* expanded = nullptr;  // [chunk tokens, heads * (nope_dim + value_dim)]
  const __nv_bfloat16* latents = nullptr;   // [chunk tokens, rank + rope_dim]
  int64_t chunk_begin = 0;                  // position, the start of a page
  int64_t chunk_end = 0;                    // position after the last token there is
  const __nv_bfloat16* q = nullptr;         // of the sequence's first row
  int64_t q_stride = 0;
  __nv_bfloat16* o = nullptr;
  int64_t o_stride = 0;
  int64_t rows = 0;
  int64_t first_token = 0;    // position of the first row; a multiple of 64
  int64_t first_panel = 0;    // the first with a key in the chunk
  float* sums = nullptr;      // [heads, padded rows, padded value_dim]: unnormalised, across chunks
  float2* softmax = nullptr;  // [heads, padded rows]: largest score and sum so far
};

// Keys of one page; rows are padded to panels. latent_hopper.h has what serves Hopper.
cudaError_t LaunchLatentChunk(const LatentChunkParams& params, cudaStream_t stream);

// A part of kLatentPartTokens keys, or fewer at the end.
struct LatentPart {
  const __nv_bfloat16* latents = nullptr;  // its first row
  int32_t tokens = 0;
  int32_t sequence = 0;  // row of q
};

struct LatentStepKernelParams {
  LatentShape shape;
  float scale_log2 = 0.0f;
  const __nv_bfloat16* kv_b = nullptr;  // [heads * (nope_dim + value_dim), rank]
  const __nv_bfloat16* q = nullptr;
  int64_t q_stride = 0;
  __nv_bfloat16* o = nullptr;
  int64_t o_stride = 0;
  int first_sequence = 0;  // of this launch
  int sequences = 0;
  int shared_bytes = 0;                 // that a CTA may have
  const LatentPart* parts = nullptr;    // of the launch's sequences, in order
  const int32_t* part_begin = nullptr;  // [sequences + 1], into parts
  int part_count = 0;
  __nv_bfloat16* queries = nullptr;  // [sequences, heads, rank + rope_dim], scaled
  float* averages = nullptr;         // [parts, heads, rank], unnormalised
  float2* softmax = nullptr;         // [parts, heads]
  float* merged = nullptr;           // [sequences, heads, rank]
};
cudaError_t LaunchLatentStep(const LatentStepKernelParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_H_
