// The states that a store has published, in memory: what a lookup probes and what eviction orders.
// Holds whole state ids, not only tags, because eviction needs them; a probe that misses touches
// one cache line. Not thread-safe: EngineStore's mutex guards it.
#ifndef DELTAFILL_STATESTORE_STATE_TABLE_H_
#define DELTAFILL_STATESTORE_STATE_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "statestore/identity.h"

namespace deltafill {

struct StateEntry {
  int64_t last_use_us = 0;  // unique within a table: orders eviction
  uint64_t boundary = 0;    // tokens
  uint32_t tenant = 0;      // index, see EngineStore
  uint32_t holds = 0;       // by snapshot records
  bool pinned = false;
  bool visible = false;         // false while it is being published or removed
  bool busy = false;            // one operation is changing it outside the lock; others wait
  bool last_use_dirty = false;  // newer than the engine's record

  bool IsKept() const { return pinned || holds > 0; }
};

class StateTable {
 public:
  // nullptr if absent. Valid until the next Add or Erase.
  StateEntry* Find(const StateId& state);
  StateEntry& Add(const StateId& state, const StateEntry& entry);
  void Erase(const StateId& state) { entries_.erase(state); }

  uint64_t size() const { return entries_.size(); }

  // Marks it as used now; at least one microsecond after every use before.
  void Touch(StateEntry* entry, int64_t now_us);

  // The visible, idle state that nothing keeps and whose last use is the longest ago. Looks at all
  // states once for some thousand calls: candidates are gathered in order, and dropped if used
  // since.
  std::optional<StateId> LeastRecentlyUsed();

  // The states used since the last call, with the time; at most limit.
  std::vector<std::pair<StateId, int64_t>> TakeDirty(size_t limit);

 private:
  struct Candidate {
    int64_t last_use_us;
    StateId state;
  };

  static bool Evictable(const StateEntry& entry) {
    return entry.visible && !entry.busy && !entry.IsKept();
  }
  void GatherCandidates();

  absl::flat_hash_map<StateId, StateEntry, DigestHash> entries_;
  std::vector<Candidate> candidates_;  // latest first: taken from the back
  int64_t latest_use_us_ = 0;
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_STATE_TABLE_H_
