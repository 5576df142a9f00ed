// How the worker puts and gets parts, whatever they hold.
#ifndef DELTAFILL_WORKER_RUNTIME_PART_ACCESS_H_
#define DELTAFILL_WORKER_RUNTIME_PART_ACCESS_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"

namespace deltafill::worker {

// Tries again when the store is UNAVAILABLE, for about a second; then its error.
absl::StatusOr<PartReceipt> PutPartWithRetry(StateStore& store, const std::string& tenant,
                                             const PartHeader& header, LayerPayloads payloads);

// A part, or those layers of it. DATA_LOSS if it is gone or fails its checksum; other errors as the
// store has them.
absl::StatusOr<Part> GetStoredPart(StateStore& store, const PartId& id,
                                   std::span<const uint32_t> layers = {});

// DATA_LOSS naming the part.
absl::Status LostPart(const PartId& id, absl::string_view why);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_PART_ACCESS_H_
