#include "coordinator/front/part_leases.h"

#include "absl/strings/str_cat.h"
#include "coordinator/front/log.h"
#include "coordinator/latent_parts.h"

namespace deltafill::coordinator {

void ReleaseLeases(StateStore& store, std::span<const uint64_t> lease_ids) {
  if (lease_ids.empty()) return;
  const absl::Status status = store.ReleaseLeases(lease_ids);
  if (!status.ok()) LogWarning(absl::StrCat("leases not given back: ", status.ToString()));
}

void ReleaseParts(StateStore& store, std::span<const PartReceipt> parts) {
  ReleaseLeases(store, LeaseIds(parts));
}

absl::StatusOr<std::vector<PartReceipt>> LeaseShared(StateStore& store, const StartState& start) {
  std::vector<PartId> ids = LatentIds(WholePieces(start.parts, start.boundary));
  if (ids.empty()) return std::vector<PartReceipt>();
  absl::StatusOr<std::vector<PartReceipt>> leased = store.LeaseParts(ids);
  if (!absl::IsNotFound(leased.status())) return leased;
  return absl::DataLossError(
      absl::StrCat("the state at token ", start.boundary, ": ", leased.status().message()));
}

}  // namespace deltafill::coordinator
