// Which parts of a state are pieces of latents, and which of those other states share. Parts stand
// in one order everywhere: recurrent, convolution tail, pieces of latents ascending (and, in
// exports, logits).
#ifndef DELTAFILL_COORDINATOR_LATENT_PARTS_H_
#define DELTAFILL_COORDINATOR_LATENT_PARTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

// The pieces of latents, ascending.
std::vector<PartRef> LatentsOf(std::span<const PartRef> parts);

// How many pieces the latents of so many tokens make; the last one may be shorter.
constexpr uint64_t PieceCount(uint64_t tokens) {
  return (tokens + kLatentPieceTokens - 1) / kLatentPieceTokens;
}

// The pieces of a state at `boundary` that end at multiples of kLatentPieceTokens: any longer
// prompt that begins with it has the same ones.
std::vector<PartRef> WholePieces(std::span<const PartRef> parts, uint64_t boundary);

// As receipts without leases.
std::vector<PartReceipt> AsReceipts(std::span<const PartRef> parts);

// Parts that one worker put, with the whole pieces before its own latents.
std::vector<PartReceipt> WithPieces(std::span<const PartReceipt> own,
                                    std::span<const PartReceipt> pieces);

std::vector<PartRef> AsRefs(std::span<const PartReceipt> parts);

// Leases of the parts that have one.
std::vector<uint64_t> LeaseIds(std::span<const PartReceipt> parts);

// Ids of the latents, or of everything else.
std::vector<PartId> LatentIds(std::span<const PartRef> parts);
std::vector<PartId> IdsWithoutLatents(std::span<const PartRef> parts);

// "" if the parts are all that a state of the model has at this boundary, as far as kinds, numbers
// and the sizes of pieces tell: pieces without a gap from token 0 to the boundary.
std::string WhyIncomplete(const ServedModel& model, uint64_t boundary,
                          std::span<const PartRef> parts);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_LATENT_PARTS_H_
