// The CPU's latent attention operators. Contracts are those of kernels/latent_attention.h; params
// are validated. Scratch is the lane's; kResourceExhausted if it cannot be had, kInternal if oneDNN
// fails.
//
// A non-finite q, latent or weight makes the outputs that attend to it non-finite, and no others.
#ifndef DELTAFILL_KERNELS_CPU_LATENT_OPERATORS_H_
#define DELTAFILL_KERNELS_CPU_LATENT_OPERATORS_H_

#include <cstdint>

#include "kernels/cpu/lane_scratch.h"
#include "kernels/cpu/latent_projection.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/latent_attention.h"

namespace deltafill::kernels::cpu {

// Keys that are scored at once. Tiles begin at absolute multiples of it.
inline constexpr int64_t kKeyTile = 256;
static_assert(kKeyTile % kBlockTokens == 0 && kLatentPageTokens % kKeyTile == 0);

// Of expanded keys and values that prefill holds at once, at least one tile's.
inline constexpr int64_t kChunkBytes = int64_t{16} << 20;

void LatentAppend(const LatentAppendParams& params, ThreadTeam& team);

// A row's panel is its block of 64 absolute positions. It sees the keys before it in full tiles and
// one shorter tile, then its own block under the causal mask: an order, and shapes of library
// calls, that follow from the position alone. chunk_bytes does not show in the bits.
Status LatentPrefill(const LatentPrefillParams& params, const CpuLatentProjection& projection,
                     ThreadTeam& team, LaneScratch& scratch, int64_t chunk_bytes = kChunkBytes);

// All heads of a sequence share the reading of its latents: a tile's scores are one product
// [heads, LatentWidth] x [LatentWidth, tile]. Keys are split at absolute positions, and the parts
// are merged in ascending order.
Status LatentStep(const LatentStepParams& params, const CpuLatentProjection& projection,
                  ThreadTeam& team, LaneScratch& scratch);

// The cached row of a position. `width`: LatentWidth.
inline float* LatentRow(const LatentSequence& sequence, int64_t token, int64_t width) {
  void* const page = sequence.pages[static_cast<size_t>(token / kLatentPageTokens)];
  return static_cast<float*>(page) + token % kLatentPageTokens * width;
}

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_LATENT_OPERATORS_H_
