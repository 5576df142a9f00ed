// Leases: handing them out, renewing and ending them.
#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"

namespace deltafill {
namespace {

constexpr size_t kLeasesMax = size_t{1} << 20;
constexpr int64_t kLeaseMs = std::chrono::milliseconds(kLeaseDuration).count();

}  // namespace

absl::Status EngineStore::CheckLeaseRoom(size_t more) const {
  if (leases_.size() + more <= kLeasesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("leases: limit ", kLeasesMax));
}

absl::StatusOr<std::vector<PartReceipt>> EngineStore::LeaseParts(std::span<const PartId> parts) {
  if (parts.size() > kManifestPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts: ", parts.size(), ", limit ", kManifestPartsMax));
  }
  std::vector<PartReceipt> receipts;
  receipts.reserve(parts.size());
  Lock lock(mutex_);
  absl::Status status = CheckLeaseRoom(parts.size());
  for (const PartId& id : parts) {
    if (!status.ok()) break;
    if (IsThere(lock, id)) {
      const PartEntry* entry = parts_.Find(id);
      receipts.push_back({id, entry->kind, entry->bytes, AddLease(id)});
    } else {
      status = absl::NotFoundError(absl::StrCat(
          "part ", id.ToHex(), parts_.Find(id) == nullptr ? " is not there" : " is damaged"));
    }
  }
  if (status.ok()) return receipts;
  for (const PartReceipt& receipt : receipts) DropLease(receipt.lease_id);
  (void)RemoveLooseParts(lock);  // what lost its last manifest meanwhile; the sweep does the rest
  return status;
}

uint64_t EngineStore::AddLease(const PartId& id) {
  parts_.Change(id, [](PartEntry& entry) { ++entry.leases; });
  return leases_.Add(id, clock_->SteadyMs() + kLeaseMs);
}

void EngineStore::DropLease(uint64_t lease_id) {
  const std::optional<PartId> part = leases_.Remove(lease_id);
  if (!part || parts_.Find(*part) == nullptr) return;
  parts_.Change(*part, [](PartEntry& entry) { --entry.leases; });
}

void EngineStore::DropExpiredLeases() {
  for (const PartId& part : leases_.RemoveExpired(clock_->SteadyMs())) {
    parts_.Change(part, [](PartEntry& entry) { --entry.leases; });
  }
}

absl::Status EngineStore::RenewLeases(std::span<const uint64_t> lease_ids) {
  if (lease_ids.size() > kLeasesPerCallMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease_ids: ", lease_ids.size(), ", limit ", kLeasesPerCallMax));
  }
  Lock lock(mutex_);
  const int64_t now_ms = clock_->SteadyMs();
  size_t gone_count = 0;
  for (uint64_t lease_id : lease_ids) {
    if (!leases_.Renew(lease_id, now_ms, now_ms + kLeaseMs)) ++gone_count;
  }
  if (gone_count == 0) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(gone_count, " of ", lease_ids.size(), " leases had run out"));
}

absl::Status EngineStore::ReleaseLeases(std::span<const uint64_t> lease_ids) {
  if (lease_ids.size() > kLeasesPerCallMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease_ids: ", lease_ids.size(), ", limit ", kLeasesPerCallMax));
  }
  Lock lock(mutex_);
  for (uint64_t lease_id : lease_ids) DropLease(lease_id);
  return RemoveLooseParts(lock);
}

}  // namespace deltafill
