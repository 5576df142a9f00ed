// Reading, listing and pinning manifests; totals.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {

absl::Status NoSuchState(const StateId& state) {
  return absl::NotFoundError(absl::StrCat("no state ", state.ToHex()));
}

absl::StatusOr<Manifest> EngineStore::ReadManifest(std::string_view tenant, const StateId& state) {
  absl::StatusOr<Manifest> manifest = absl::DataLossError("manifest: not read");
  const absl::Status status =
      engine_->Get(Family::kMeta, ManifestKey(tenant, state),
                   [&manifest](std::string_view value) { manifest = DecodeManifest(value); });
  if (!status.ok()) return status;
  if (manifest.ok() && (manifest->state != state || manifest->tenant != tenant)) {
    return absl::DataLossError("manifest: of another state");
  }
  return manifest;
}

absl::StatusOr<Manifest> EngineStore::GetManifest(std::string_view tenant, const StateId& state) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  {
    Lock lock(mutex_);
    const StateEntry* entry = states_.Find(state);
    if (entry == nullptr || !entry->visible || entry->tenant != TenantIndex(tenant)) {
      return NoSuchState(state);
    }
  }
  absl::StatusOr<Manifest> manifest = ReadManifest(tenant, state);
  if (absl::IsNotFound(manifest.status())) return NoSuchState(state);  // removed meanwhile
  if (absl::IsDataLoss(manifest.status())) {
    return absl::NotFoundError(absl::StrCat(
        "state ", state.ToHex(), " is damaged: ", std::string(manifest.status().message())));
  }
  if (!manifest.ok()) return manifest;
  Lock lock(mutex_);
  const StateEntry* entry = states_.Find(state);
  if (entry == nullptr || !entry->visible) return NoSuchState(state);
  const std::string damage = KnownDamage(*manifest);
  if (!damage.empty()) {
    return absl::NotFoundError(absl::StrCat("state ", state.ToHex(), " is damaged: ", damage));
  }
  return manifest;
}

absl::StatusOr<StateEntry*> EngineStore::WaitForState(Lock& lock, std::string_view tenant,
                                                      const StateId& state) {
  for (;;) {
    StateEntry* entry = states_.Find(state);
    if (entry == nullptr || entry->tenant != TenantIndex(tenant)) return NoSuchState(state);
    if (!entry->busy) return entry;
    changed_.wait(lock);
  }
}

absl::StatusOr<ManifestPage> EngineStore::List(std::string_view tenant, std::string_view page,
                                               size_t limit) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  if (limit == 0 || limit > kListPageMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit ", limit, ": must be 1 to ", kListPageMax));
  }
  StateId last;
  if (!page.empty() && !StateId::FromBytes(page, &last)) {
    return absl::InvalidArgumentError("page: not one that List returned");
  }
  const std::string prefix = ManifestKeyPrefix(tenant);
  std::string from = prefix;
  if (!page.empty()) from.append(page).push_back('\0');  // the first key after that state's

  ManifestPage result;
  bool more = false;
  const absl::Status status =
      engine_->Scan(Family::kMeta, prefix, from, [&](std::string_view, std::string_view value) {
        absl::StatusOr<Manifest> manifest = DecodeManifest(value);
        if (!manifest.ok() || manifest->tenant != tenant) return true;
        more = result.manifests.size() == limit;
        if (!more) result.manifests.push_back(*std::move(manifest));
        return !more;
      });
  if (!status.ok() && !absl::IsDataLoss(status)) return status;  // damaged records are misses
  if (more) result.next_page = std::string(result.manifests.back().state.view());
  Lock lock(mutex_);
  std::erase_if(result.manifests, [&](const Manifest& manifest) {
    const StateEntry* entry = states_.Find(manifest.state);
    return entry == nullptr || !entry->visible;
  });
  for (Manifest& manifest : result.manifests) manifest.damage = KnownDamage(manifest);
  return result;
}

absl::Status EngineStore::SetPinned(std::string_view tenant, const StateId& state, bool pinned) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  Lock lock(mutex_);
  absl::StatusOr<StateEntry*> entry = WaitForState(lock, tenant, state);
  if (!entry.ok()) return entry.status();
  (*entry)->busy = true;
  lock.unlock();
  absl::StatusOr<Manifest> manifest = ReadManifest(tenant, state);
  absl::Status status = manifest.status();
  const bool changes = status.ok() && manifest->pinned != pinned;
  if (changes) {
    manifest->pinned = pinned;
    WriteSet writes;
    writes.PutOwned(Family::kMeta, ManifestKey(tenant, state), EncodeManifest(*manifest));
    status = engine_->Write(writes, Durability::kSynced);
  }
  lock.lock();
  StateEntry* idle = states_.Find(state);
  idle->busy = false;
  if (changes && status.ok()) {
    const bool was_kept = idle->IsKept();
    idle->pinned = pinned;
    AddReferences(*manifest, idle->IsKept());
    DropReferences(*manifest, was_kept);
  }
  changed_.notify_all();
  return status;
}

absl::StatusOr<StoreStats> EngineStore::GetStats() {
  Lock lock(mutex_);
  StoreStats stats;
  stats.states = states_.size();
  stats.parts = parts_.size();
  stats.bytes = parts_.bytes();
  stats.budget_bytes = options_.budget_bytes;
  stats.evicted_states = evicted_states_;
  stats.quarantined_parts = quarantined_parts_;
  stats.determinism_mismatches = determinism_mismatches_;
  return stats;
}

}  // namespace deltafill
