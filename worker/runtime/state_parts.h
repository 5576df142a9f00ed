// Prefix states in and out of the state store: one part a kind. (Latents: latent_pieces.h.)
#ifndef DELTAFILL_WORKER_RUNTIME_STATE_PARTS_H_
#define DELTAFILL_WORKER_RUNTIME_STATE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// The headers of a prefix state's parts, in the layout's order of kinds. INVALID_ARGUMENT if
// entries of one kind differ in shape or dtype, or do not stand together: the layout cannot be
// stored.
absl::StatusOr<std::vector<PartHeader>> PartHeaders(const StateLayout& layout, uint64_t boundary);

// Puts all parts of a state (host memory) into the store, under leases. Errors as PutPartWithRetry;
// parts already put then vanish with their leases.
absl::StatusOr<std::vector<PartReceipt>> PutPrefixState(StateStore& store,
                                                        const std::string& tenant,
                                                        const StateLayout& layout,
                                                        uint64_t boundary, const std::byte* state);

// The last token's logits as a part.
absl::StatusOr<PartReceipt> PutLogits(StateStore& store, const std::string& tenant,
                                      uint64_t boundary, std::span<const float> logits);

// Reads the parts and checks that they are exactly this layout's at this boundary. DATA_LOSS if one
// is gone, fails its checksum or is of another form; other errors (UNAVAILABLE) as the store has
// them.
absl::Status LoadPrefixState(StateStore& store, std::span<const PartId> parts,
                             const StateLayout& layout, uint64_t boundary, std::byte* state);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_STATE_PARTS_H_
