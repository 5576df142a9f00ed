// What of a prompt is stored, and from where to compute so that everything asked for exists at the
// end.
#ifndef DELTAFILL_COORDINATOR_FRONT_PREFIX_LOOKUP_H_
#define DELTAFILL_COORDINATOR_FRONT_PREFIX_LOOKUP_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/keyed_prompt.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct PrefixHit {
  StartState start;         // the zero state if nothing is stored
  std::string miss_reason;  // "" if nothing deeper could have been found
};

// The deepest whole state of the prompt at or before FinalBoundary, none of whose parts is missing
// that the model needs. With `verify` every part is read and verified; without, whoever starts
// there must do it. `others` are the models being served: if one with the same weights and other
// numerics has a deeper state, the reason says so. DATA_LOSS if the prompt begins at a state (base
// > 0) that is damaged, NOT_FOUND if it is gone.
absl::StatusOr<PrefixHit> FindPrefix(StateStore& store, const KeyedPrompt& prompt, bool verify,
                                     std::span<const ServedModel> others);

// Whether a start state that was not verified is the reason why work from it ended like that: it is
// damaged, or the store cannot read it, which only shows where it is read. Then the log says that
// it is looked up again.
bool IsStartLost(StateStore& store, const KeyedPrompt& prompt, const StartState& start,
                 const absl::Status& ended);

struct PrefillStart {
  StartState start;
  std::string miss_reason;
  std::vector<uint64_t> missing;  // boundaries to compute and store, ascending, > start.boundary
  std::map<uint64_t, Manifest> stored;  // wanted boundaries that need no computing
};

struct StartAsk {
  // Everything is computed from the prompt's base, stored or not; only for whole prompts.
  bool no_resume = false;
  // Reads and verifies every part of the start. Without, whoever starts there must do it.
  bool verify = true;
};

// wanted: boundaries that must be stored at the end, ascending, in (base, end of the chain].
// Computing starts at the deepest stored state at or before FinalBoundary, or, when a wanted
// boundary before that one is not stored, at the deepest stored state before the first such
// boundary.
absl::StatusOr<PrefillStart> PlanStart(StateStore& store, const KeyedPrompt& prompt,
                                       std::span<const uint64_t> wanted, const StartAsk& ask,
                                       std::span<const ServedModel> others);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PREFIX_LOOKUP_H_
