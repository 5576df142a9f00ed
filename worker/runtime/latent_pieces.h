// Latents in and out of the state store: one part a piece, with all attention layers in it.
#ifndef DELTAFILL_WORKER_RUNTIME_LATENT_PIECES_H_
#define DELTAFILL_WORKER_RUNTIME_LATENT_PIECES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/model/buffer_pool.h"
#include "worker/model/latent_cache.h"
#include "worker/runtime/latent_pool.h"

namespace deltafill::worker {

// Rows [first_token, first_token + token_count) of every attention layer, which nobody changes any
// more. Holds its memory, wherever the sequence goes.
struct LatentPiece {
  uint64_t first_token = 0;       // a multiple of kLatentPieceTokens
  uint64_t token_count = 0;       // at most kLatentPieceTokens
  std::vector<LatentPage> pages;  // one a layer, as in the layout
  LatentClaimRef claim;
};

// Of a whole piece, all layers.
inline size_t PieceBytesMax(const LatentLayout& layout) {
  return layout.layers.size() * kLatentPieceTokens * layout.RowBytes();
}

// The piece that ends at `end` (> 0): it starts at the last multiple of kLatentPieceTokens before.
LatentPiece TakePiece(const SequenceLatents& latents, uint64_t end);

// All pieces up to `end` of which something lies at or after `begin`, ascending.
std::vector<LatentPiece> TakePieces(const SequenceLatents& latents, uint64_t begin, uint64_t end);

PartHeader LatentHeader(const LatentLayout& layout, uint64_t first_token, uint64_t token_count);

// Where a piece's rows are on the host: one start a layer, as in the layout.
using PieceRows = std::vector<const std::byte*>;

// In the pages themselves, for backends that use the host's memory.
PieceRows RowsInPages(const LatentPiece& piece);

// INTERNAL naming layer and position of the first value that is not finite.
absl::Status CheckPieceFinite(const LatentLayout& layout, const LatentPiece& piece,
                              const PieceRows& rows);

// Under a lease; errors as PutPartWithRetry.
absl::StatusOr<PartReceipt> PutPiece(StateStore& store, const std::string& tenant,
                                     const LatentLayout& layout, const LatentPiece& piece,
                                     const PieceRows& rows);

// Fills the cache, which has room for them, with the rows of tokens [0, boundary) from the parts,
// in any order; complete when it returns. host_buffers: page-locked memory to copy to a device
// from, one buffer of PieceBytesMax; nullptr for backends that use the host's memory. DATA_LOSS if
// one is gone, fails its checksum or is no piece of this model up to this boundary, or if one is
// missing; other errors as the store has them.
absl::Status LoadLatents(StateStore& store, std::span<const PartId> parts,
                         const LatentLayout& layout, uint64_t boundary,
                         kernels::Operators& operators, BufferPool* host_buffers,
                         LatentCache& cache);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_LATENT_PIECES_H_
