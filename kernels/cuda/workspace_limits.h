// How much the workspaces of a CUDA lane hold at once, and what they grow to: for kernels, their
// plans, and whoever plans a card's memory. Without CUDA.
#ifndef DELTAFILL_KERNELS_CUDA_WORKSPACE_LIMITS_H_
#define DELTAFILL_KERNELS_CUDA_WORKSPACE_LIMITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/slot_layout.h"
#include "kernels/delta_rule.h"
#include "kernels/latent_attention.h"
#include "kernels/mixture_of_experts.h"

namespace deltafill::kernels::cuda {

// Blocks that the portable path of the delta rule prepares in a wave: 270 MB at K = 128. The ring
// path has fewer slots.
inline constexpr int64_t kWaveSlots = 4096;
// Of matrix products.
inline constexpr size_t kProductWorkspaceBytes = size_t{16} << 20;
// Keys that latent attention expands at a time where it runs fastest; elsewhere a page.
inline constexpr int64_t kLatentChunkTokens = 4 * kLatentPageTokens;
// Keys of a part of a decoding step, at an absolute position: how a sum is cut depends on the
// position alone.
inline constexpr int64_t kLatentPartTokens = 512;
static_assert(kLatentPageTokens % kLatentPartTokens == 0);
// Parts of a launch of a decoding step, but for a longer sequence, which is alone.
inline constexpr int64_t kLatentPartsHeld = 2048;
// Rows times top_k of a pass of the mixture of experts. More rows are done pass after pass.
inline constexpr int64_t kMixtureChoicesMax = int64_t{1} << 17;

// Upper bounds of what each operator makes a lane keep, in bytes.

inline size_t RuleWorkspaceBytes(const DeltaRuleShape& shape) {
  constexpr size_t kGroupsMax = 512;  // two a multiprocessor
  const size_t exact_rows = kGroupsMax * 3 * kBlockRows * static_cast<size_t>(shape.key_dim) * 4;
  const size_t carried =
      size_t{4} * static_cast<size_t>(shape.value_heads * shape.value_dim * shape.key_dim);
  return static_cast<size_t>(kWaveSlots * SlotBytes(shape.key_dim)) + exact_rows + carried;
}

// A prefill call of `rows`.
inline size_t LatentPrefillWorkspaceBytes(const LatentShape& shape, int64_t rows) {
  constexpr int64_t kRowsPadded = 256;
  const int64_t columns = shape.heads * (shape.nope_dim + shape.value_dim) + shape.rope_dim;
  const int64_t states = (rows + kRowsPadded) * shape.heads;
  constexpr int64_t kValuesPadded = 128;  // the most that a kernel pads value_dim to
  return static_cast<size_t>(kLatentChunkTokens * columns * 2 + states * (kValuesPadded + 2) * 4);
}

// Steps of `batch` sequences, the longest of `tokens`.
inline size_t LatentStepWorkspaceBytes(const LatentShape& shape, int64_t batch, int64_t tokens) {
  const int64_t parts = std::max(kLatentPartsHeld, tokens / kLatentPartTokens + 1);
  const int64_t rows = batch * shape.heads;
  return static_cast<size_t>(parts * (shape.heads * (shape.rank + 2) * 4 + 32) +
                             rows * (shape.LatentWidth() * 2 + shape.rank * 4));
}

// `rows` rows at once, or as many as a pass has.
inline size_t MixtureWorkspaceBytes(const MixtureShape& shape, int64_t rows) {
  const int64_t pass_rows = std::min(rows, kMixtureChoicesMax / shape.top_k);
  const int64_t choices = pass_rows * shape.top_k;
  const int64_t routing = pass_rows * shape.experts * 5 + choices * 16 + shape.experts * 64;
  return static_cast<size_t>(choices * (shape.hidden + shape.expert_width) * 2 + routing);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_WORKSPACE_LIMITS_H_
