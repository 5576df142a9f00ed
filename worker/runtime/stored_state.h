// A stored prefix state, read by threads of its own in the order in which layers need it: while
// later layers are read, earlier ones are computed.
#ifndef DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_
#define DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/model/state_layout.h"
#include "worker/runtime/part_readers.h"

namespace deltafill::worker {

// Awaited by one thread. Ends after the reads at hand.
class StoredState {
 public:
  // Begins to read the parts of a state at `boundary` into host memory of layout.bytes, which
  // nobody else uses until this object is gone. There must be one part a kind. Store and layout
  // outlive it.
  static absl::StatusOr<std::unique_ptr<StoredState>> Begin(StateStore& store,
                                                            std::span<const PartId> parts,
                                                            const StateLayout& layout,
                                                            uint64_t boundary, std::byte* to);

  // Until the entry of the layout is there, verified. DATA_LOSS if a part is gone, fails its
  // checksum or is of another form; other errors as the store has them.
  absl::StatusOr<const std::byte*> Await(const StateEntry& entry);

  double wait_s() const { return wait_s_; }  // spent in Await

 private:
  StoredState(StateStore& store, std::span<const PartId> parts, const StateLayout& layout,
              std::byte* to);
  // The first reads are of the parts, whose kinds are not known yet; then come the other entries.
  absl::Status Read(size_t index);
  absl::Status ReadPart(const PartId& id);          // its first layer, which tells what it is
  absl::Status ReadEntry(const StateEntry& entry);  // once all parts are known
  absl::Status AddKind(PartKind kind, const PartId& id);
  absl::Status CheckKinds() const;
  absl::Status Place(const StateEntry& entry, const PartId& id, const Part& part);

  StateStore& store_;
  const StateLayout& layout_;
  std::byte* const to_;
  const std::vector<PartId> parts_;
  std::vector<PartHeader> headers_;       // of each kind's first layer
  std::vector<const StateEntry*> later_;  // entries that are no kind's first, as they are needed
  std::map<const StateEntry*, size_t> read_of_;  // of those, the index of the read

  std::mutex mutex_;
  std::map<PartKind, PartId> kinds_;  // guarded by mutex_ until all parts are known

  double wait_s_ = 0;
  std::optional<PartReaders> readers_;  // last
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_
