// Which of the models that workers serve a request means.
#ifndef DELTAFILL_COORDINATOR_FRONT_MODEL_CHOICE_H_
#define DELTAFILL_COORDINATOR_FRONT_MODEL_CHOICE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

// The model of that name; "": the only one there is. If workers serve one model with several
// numerics ids, the first in the order of `served`. UNAVAILABLE if there is no worker at all;
// INVALID_ARGUMENT naming the field and what is served otherwise.
absl::StatusOr<ServedModel> ChooseModel(std::span<const ServedModel> served, std::string_view name);

// The served model that a state belongs to, with the state's numerics. FAILED_PRECONDITION naming
// both if nobody serves it, or if `name` is given and means another model; UNAVAILABLE without
// workers.
absl::StatusOr<ServedModel> ModelOfState(std::span<const ServedModel> served,
                                         const ModelFingerprint& fingerprint,
                                         std::string_view numerics, std::string_view name);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_MODEL_CHOICE_H_
