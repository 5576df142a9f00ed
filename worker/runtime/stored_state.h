// A stored prefix state, read a layer at a time: while later layers are read, a device computes
// earlier ones.
#ifndef DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_
#define DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// Used by one thread at a time.
class StoredState {
 public:
  // Checks that there is one part a kind, of this layout at this boundary. Reads one layer of each.
  // Errors as LoadPrefixState. Store and layout outlive it.
  static absl::StatusOr<std::unique_ptr<StoredState>> Open(StateStore& store,
                                                           std::span<const PartId> parts,
                                                           const StateLayout& layout,
                                                           uint64_t boundary);

  // Reads and verifies an entry of the layout into host memory. DATA_LOSS if the part is gone or
  // fails its checksum; other errors as the store has them.
  absl::Status Read(const StateEntry& entry, std::byte* to) const;

 private:
  explicit StoredState(StateStore& store) : store_(store) {}

  StateStore& store_;
  std::map<PartKind, PartId> parts_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_
