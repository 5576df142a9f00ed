// The parts that a store holds, in memory: who holds them, how large, in which condition. Rebuilt
// at start from the engine's records, so reference counts cannot drift from the manifests.
// Not thread-safe: EngineStore's mutex guards it.
#ifndef DELTAFILL_STATESTORE_PART_TABLE_H_
#define DELTAFILL_STATESTORE_PART_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "statestore/identity.h"
#include "statestore/part.h"

namespace deltafill {

enum class PartCondition : uint8_t {
  kAbsent,   // being written for the first time, or being removed
  kWhole,    // nothing is known against it
  kDamaged,  // a read failed its checksum, or its bytes are gone
};

struct PartEntry {
  uint64_t bytes = 0;              // encoded; 0 if nothing of it is on disk
  uint32_t references = 0;         // manifests that name it
  uint32_t pinned_references = 0;  // those of them that are pinned or held by a snapshot
  uint32_t leases = 0;
  uint32_t generation = 0;  // new at every writing; tells a late reader that it saw old bytes
  uint16_t layer_count = 0;
  PartKind kind = PartKind::kRecurrent;
  PartCondition condition = PartCondition::kAbsent;
  bool busy = false;  // one operation is writing it outside the lock; others wait
};
static_assert(kPartLayersMax <= UINT16_MAX);

class PartTable {
 public:
  // nullptr if absent. Valid until the next Add or Erase.
  const PartEntry* Find(const PartId& id) const {
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : &found->second;
  }

  // The only way to change an entry, or to add one; keeps the totals.
  template <typename ChangeFunction>
  void Change(const PartId& id, ChangeFunction change) {
    PartEntry& entry = entries_[id];
    Subtract(entry);
    change(entry);
    Add(entry);
    if (IsLoose(entry)) {
      loose_.insert(id);
    } else {
      loose_.erase(id);
    }
  }

  void Erase(const PartId& id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    Subtract(found->second);
    entries_.erase(found);
    loose_.erase(id);
  }

  // Held by nobody and not busy: to be removed.
  const absl::flat_hash_set<PartId, DigestHash>& loose() const { return loose_; }

  std::vector<PartId> Ids() const {
    std::vector<PartId> ids;
    ids.reserve(entries_.size());
    for (const auto& [id, entry] : entries_) ids.push_back(id);
    return ids;
  }

  uint64_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }
  // Of parts that eviction cannot free: leased, being written, or of pinned or held states.
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  static bool IsLoose(const PartEntry& entry) {
    return entry.references == 0 && entry.leases == 0 && !entry.busy;
  }
  static uint64_t HeldBytes(const PartEntry& entry) {
    return entry.leases > 0 || entry.pinned_references > 0 ? entry.bytes : 0;
  }
  void Subtract(const PartEntry& entry) {
    bytes_ -= entry.bytes;
    held_bytes_ -= HeldBytes(entry);
  }
  void Add(const PartEntry& entry) {
    bytes_ += entry.bytes;
    held_bytes_ += HeldBytes(entry);
  }

  absl::flat_hash_map<PartId, PartEntry, DigestHash> entries_;
  absl::flat_hash_set<PartId, DigestHash> loose_;
  uint64_t bytes_ = 0;
  uint64_t held_bytes_ = 0;
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_PART_TABLE_H_
