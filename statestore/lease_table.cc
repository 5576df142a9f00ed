#include "statestore/lease_table.h"

#include <random>

namespace deltafill {

LeaseTable::LeaseTable() {
  std::random_device device;
  last_id_ = uint64_t{device()} << 32 | device();
}

uint64_t LeaseTable::Add(const PartId& part, int64_t expires_ms) {
  if (++last_id_ == 0) ++last_id_;
  leases_[last_id_] = {part, expires_ms};
  return last_id_;
}

bool LeaseTable::Renew(uint64_t lease_id, int64_t now_ms, int64_t expires_ms) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second.expires_ms <= now_ms) return false;
  found->second.expires_ms = expires_ms;
  return true;
}

std::optional<PartId> LeaseTable::Remove(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return std::nullopt;
  const PartId part = found->second.part;
  leases_.erase(found);
  return part;
}

std::vector<PartId> LeaseTable::RemoveExpired(int64_t now_ms) {
  std::vector<PartId> parts;
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto lease = it++;
    if (lease->second.expires_ms > now_ms) continue;
    parts.push_back(lease->second.part);
    leases_.erase(lease);
  }
  return parts;
}

}  // namespace deltafill
