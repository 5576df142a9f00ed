#include "coordinator/front/part_leases.h"

#include "absl/strings/str_cat.h"
#include "coordinator/front/log.h"

namespace deltafill::coordinator {

std::vector<uint64_t> LeaseIds(std::span<const PartReceipt> parts) {
  std::vector<uint64_t> leases;
  leases.reserve(parts.size());
  for (const PartReceipt& part : parts) leases.push_back(part.lease_id);
  return leases;
}

void ReleaseParts(StateStore& store, std::span<const PartReceipt> parts) {
  if (parts.empty()) return;
  const absl::Status status = store.ReleaseLeases(LeaseIds(parts));
  if (!status.ok()) LogWarning(absl::StrCat("leases not given back: ", status.ToString()));
}

}  // namespace deltafill::coordinator
