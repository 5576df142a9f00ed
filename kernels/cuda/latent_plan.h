// Checks and plans of latent attention, without CUDA calls.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_PLAN_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/workspace_limits.h"
#include "kernels/latent_attention.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

// Dims of a head must be multiples of 8; kUnsupported where no kernel serves them.
Status CheckLatentShape(const LatentShape& shape);
Status CheckLatentAppend(const LatentAppendParams& params);
// The projection's pointer is not read.
Status CheckLatentPrefill(const LatentPrefillParams& params, const LatentShape& shape);
Status CheckLatentStep(const LatentStepParams& params, const LatentShape& shape);

float LatentScale(const LatentShape& shape);

// The keys of a prefill call in the order in which they are expanded, `chunk_tokens` (whole pages)
// at a time, the last cut at the end of the tokens.
struct LatentChunk {
  int64_t begin = 0;        // position, a multiple of chunk_tokens
  int64_t end = 0;          // position
  int64_t first_panel = 0;  // of 64 rows from the call's first row on; earlier ones are finished
};
std::vector<LatentChunk> PlanLatentChunks(int64_t first_token, int64_t rows, int64_t chunk_tokens);

// Sequences [first, first + count) of a step that share a launch, so that their parts' results fit
// about kLatentPartsHeld; a longer sequence is alone.
struct LatentStepGroup {
  int64_t first = 0;
  int64_t count = 0;
  int64_t parts = 0;
};
// positions[i]: of sequence i's row.
std::vector<LatentStepGroup> PlanLatentStep(const std::vector<int64_t>& positions);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_PLAN_H_
