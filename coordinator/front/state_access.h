// From a handle to the state that it names, for the tenant who asks.
#ifndef DELTAFILL_COORDINATOR_FRONT_STATE_ACCESS_H_
#define DELTAFILL_COORDINATOR_FRONT_STATE_ACCESS_H_

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/handle.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

// The one text for a state that is absent and for one that is another tenant's.
absl::Status StateNotFound(std::string_view field);

// INVALID_ARGUMENT: boundary 0 can be neither deleted nor pinned.
absl::Status ZeroIsNotStored();

// The manifest a reference names. A zero-state reference is checked against the tenant's roots of
// the served models; its manifest has boundary 0, no parts and is stored nowhere. NOT_FOUND
// (StateNotFound's text) if there is none of this tenant.
absl::StatusOr<Manifest> FindState(StateStore& store, std::string_view tenant,
                                   const TenantSalt& salt, const PrefixRef& ref,
                                   std::span<const ServedModel> served, std::string_view field);

// INVALID_ARGUMENT if the handle's tail has ids that the model does not know.
absl::Status CheckTail(const PrefixRef& ref, const ServedModel& model);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_STATE_ACCESS_H_
