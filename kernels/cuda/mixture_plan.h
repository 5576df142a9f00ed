// Checks and plans of the mixture of experts, without CUDA calls.
#ifndef DELTAFILL_KERNELS_CUDA_MIXTURE_PLAN_H_
#define DELTAFILL_KERNELS_CUDA_MIXTURE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/workspace_limits.h"
#include "kernels/mixture_of_experts.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

inline constexpr int kMixtureExpertsMax = 1024;
inline constexpr int kMixtureTopKMax = 32;
inline constexpr int64_t kMixtureFeaturesMax = int64_t{1} << 20;
// Rows that a CTA of the router chooses for.
inline constexpr int kMixtureChoosingRows = 64;

// Every limit of the params, and the experts' sizes. Rows, router and bias must be aligned to 16
// bytes; kUnsupported for top_k above kMixtureTopKMax.
Status CheckMixture(const MixtureParams& params);

// Rows of a pass: a multiple of kMixtureChoosingRows.
int64_t MixturePassRows(const MixtureShape& shape);

// Most tiles of the grouped product's list: each expert may end with a tile that is not full.
int64_t TokenTilesMax(const MixtureShape& shape, int64_t rows);

// Byte offsets of the routing's arrays in one buffer, each aligned to 16 bytes.
struct MixtureLayout {
  size_t logits = 0;   // float [rows, experts]
  size_t experts = 0;  // int32 [rows, top_k]
  size_t weights = 0;  // float [rows, top_k]
  size_t slots = 0;    // int32 [rows, top_k]
  size_t counts = 0;   // int32 [rows / kMixtureChoosingRows, experts]
  size_t begin = 0;    // int32 [experts]
  size_t tiles = 0;    // TokenTile [TokenTilesMax]
  size_t work = 0;     // GroupedWork
  size_t bytes = 0;    // of all
};
MixtureLayout LayOutMixture(const MixtureShape& shape, int64_t rows);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_MIXTURE_PLAN_H_
