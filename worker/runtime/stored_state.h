// A stored prefix state, read by threads of its own in the order in which layers need it: while
// later layers are read, earlier ones are computed.
#ifndef DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_
#define DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// Awaited by one thread.
class StoredState {
 public:
  // Begins to read the parts of a state at `boundary` into host memory of layout.bytes, which
  // nobody else uses until this object is gone. There must be one part a kind. Store and layout
  // outlive it.
  static absl::StatusOr<std::unique_ptr<StoredState>> Begin(StateStore& store,
                                                            std::span<const PartId> parts,
                                                            const StateLayout& layout,
                                                            uint64_t boundary, std::byte* to);
  ~StoredState();  // ends after the reads at hand

  // Until the entry of the layout is there, verified. DATA_LOSS if a part is gone, fails its
  // checksum or is of another form; other errors as the store has them.
  absl::StatusOr<const std::byte*> Await(const StateEntry& entry);

  double wait_s() const { return wait_s_; }  // spent in Await

 private:
  // Which entry to read, or, as long as their kinds are not known, of which part.
  struct Next {
    bool is_part = false;
    size_t index = 0;
  };

  StoredState(StateStore& store, const StateLayout& layout, std::byte* to);
  void Main();
  bool Take(Next* next);
  absl::Status ReadPart(size_t part);    // its first layer, which tells what it is
  absl::Status ReadEntry(size_t entry);  // once all parts are known
  absl::Status Place(size_t entry, const PartId& id, const Part& part);
  absl::Status CheckKinds() const;
  size_t IndexOf(uint32_t layer, PartKind kind) const;  // of an entry of the layout

  StateStore& store_;
  const StateLayout& layout_;
  std::byte* const to_;
  std::vector<PartId> parts_;
  std::vector<PartHeader> headers_;  // of each kind's first layer
  std::vector<size_t> order_;        // of entries that are no kind's first

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<PartKind, PartId> kinds_;
  std::vector<bool> there_;  // an entry
  size_t parts_taken_ = 0;
  size_t parts_known_ = 0;
  size_t entries_taken_ = 0;
  bool stopping_ = false;
  absl::Status failure_;

  double wait_s_ = 0;
  std::vector<std::thread> readers_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_STORED_STATE_H_
