// Latents of a prompt as the scheduler counts them.
#ifndef DELTAFILL_COORDINATOR_SCHEDULER_LATENTS_H_
#define DELTAFILL_COORDINATOR_SCHEDULER_LATENTS_H_

#include <cstdint>
#include <vector>

#include "coordinator/scheduler/state.h"

namespace deltafill::coordinator {

// The whole pieces that end at or before `boundary`, the start state's first; all are stored. They
// carry no leases: those stay with the prompt.
std::vector<PartReceipt> PiecesBefore(const PrefillState& prefill, uint64_t boundary);

// The parts that the current attempt starts from: the kept boundary's or the start state's.
const std::vector<PartRef>& AttemptStartParts(const PrefillState& prefill);

// Whether all whole pieces between the start state and the boundary are stored.
bool HasPieces(const PrefillState& prefill, uint64_t boundary);

// Whether a boundary that is still to be reported needs the piece that ends there, and it is not
// stored.
bool LacksPiece(const PrefillState& prefill, uint64_t end);

// Tokens that a prompt's latents take at each worker that it runs on, in whole pages; 0: the model
// has none. A decoding counts with one page to grow into.
uint64_t LatentTokens(const PromptState& prompt);

// The first end of a whole piece after a token.
constexpr uint64_t NextPieceEnd(uint64_t token) {
  return (token / kLatentPieceTokens + 1) * kLatentPieceTokens;
}

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SCHEDULER_LATENTS_H_
