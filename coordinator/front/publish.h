// Publishing a boundary's parts as a state: the last step of storing, and the only one a lookup
// sees.
#ifndef DELTAFILL_COORDINATOR_FRONT_PUBLISH_H_
#define DELTAFILL_COORDINATOR_FRONT_PUBLISH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/front/keyed_prompt.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct PublishedState {
  StateId state;
  uint64_t boundary = 0;
  std::vector<PartRef> parts;   // of what is visible now
  uint64_t bytes = 0;           // sum over parts
  bool already_stored = false;  // before this publication
};

uint64_t PartBytes(const std::vector<PartRef>& parts);

PublishedState FromManifest(const Manifest& manifest);

// Puts the manifest of stored.boundary under `state`. If a state with other bits is there already
// (a determinism mismatch), that one stays, the difference is logged as an error and the old one is
// returned. UNAVAILABLE if leases ended before (retrying the request is safe). On any error the
// leases are given back.
absl::StatusOr<PublishedState> PublishBoundary(StateStore& store, const KeyedPrompt& prompt,
                                               const StateId& state, const StoredBoundary& stored);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PUBLISH_H_
