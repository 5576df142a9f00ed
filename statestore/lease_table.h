// Leases: what keeps a part before a manifest names it. They live in memory only, so a restart
// ends them all. Not thread-safe: EngineStore's mutex guards it.
#ifndef DELTAFILL_STATESTORE_LEASE_TABLE_H_
#define DELTAFILL_STATESTORE_LEASE_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "statestore/identity.h"

namespace deltafill {

class LeaseTable {
 public:
  // Lease ids start at a random place, so that one from before a restart names none of after it.
  LeaseTable();

  uint64_t Add(const PartId& part, int64_t expires_ms);

  // False if it is unknown or had run out at now_ms.
  bool Renew(uint64_t lease_id, int64_t now_ms, int64_t expires_ms);

  // The part it held; nullopt if unknown.
  std::optional<PartId> Remove(uint64_t lease_id);

  // Removes those that had run out; the parts they held, one entry a lease.
  std::vector<PartId> RemoveExpired(int64_t now_ms);

  size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    PartId part;
    int64_t expires_ms;
  };

  absl::flat_hash_map<uint64_t, Lease> leases_;
  uint64_t last_id_;
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_LEASE_TABLE_H_
