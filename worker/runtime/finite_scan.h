// Finds infinities and NaNs before they are stored or handed to a caller.
#ifndef DELTAFILL_WORKER_RUNTIME_FINITE_SCAN_H_
#define DELTAFILL_WORKER_RUNTIME_FINITE_SCAN_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "statestore/part.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// Index of the first value that is not finite, or the number of values. `bytes` has whole values.
size_t FindNonFinite(PartDType dtype, std::span<const std::byte> bytes);

// INTERNAL naming layer, kind and head of the first value that is not finite. state: host memory
// laid out by `layout`.
absl::Status CheckStateFinite(const StateLayout& layout, const std::byte* state);

// INTERNAL if a logit is NaN or +-infinity; `what` begins the message.
absl::Status CheckLogitsFinite(std::span<const float> logits, const char* what);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_FINITE_SCAN_H_
