// PutManifest: publishing a state.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {
namespace {

std::vector<PartId> SortedIds(const Manifest& manifest) {
  std::vector<PartId> ids;
  ids.reserve(manifest.parts.size());
  for (const PartRef& part : manifest.parts) ids.push_back(part.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

absl::StatusOr<PutManifestOutcome> EngineStore::PutManifest(const Manifest& manifest,
                                                            std::span<const uint64_t> lease_ids) {
  if (absl::Status status = ValidateManifest(manifest); !status.ok()) return status;
  if (lease_ids.size() > kLeasesPerCallMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease_ids: ", lease_ids.size(), ", limit ", kLeasesPerCallMax));
  }
  Lock lock(mutex_);
  WaitUntilIdle(lock, manifest);
  absl::StatusOr<PutManifestOutcome> outcome = PutManifestOutcome::kPublished;
  if (states_.Find(manifest.state) != nullptr) {
    outcome = PublishAgain(lock, manifest);
  } else if (absl::Status status = Publish(lock, manifest); !status.ok()) {
    outcome = status;
  }
  // The references stand now, so the leases can go. After a failure the caller keeps its leases.
  if (outcome.ok()) {
    for (uint64_t lease_id : lease_ids) DropLease(lease_id);
  }
  return outcome;
}

void EngineStore::WaitUntilIdle(Lock& lock, const Manifest& manifest) {
  changed_.wait(lock, [&] {
    const StateEntry* state = states_.Find(manifest.state);
    if (state != nullptr && state->busy) return false;
    return std::none_of(manifest.parts.begin(), manifest.parts.end(), [&](const PartRef& part) {
      const PartEntry* entry = parts_.Find(part.id);
      return entry != nullptr && entry->busy;
    });
  });
}

absl::Status EngineStore::CheckParts(const Manifest& manifest) const {
  for (const PartRef& part : manifest.parts) {
    const PartEntry* entry = parts_.Find(part.id);
    if (entry == nullptr || entry->condition == PartCondition::kAbsent) {
      return absl::FailedPreconditionError(absl::StrCat("part ", part.id.ToHex(), " is not there"));
    }
    if (entry->condition == PartCondition::kDamaged) {
      return absl::FailedPreconditionError(DamageReason(part.id));
    }
    if (entry->kind != part.kind || entry->bytes != part.bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          "part ", part.id.ToHex(), " has kind ", static_cast<int>(entry->kind), " and ",
          entry->bytes, " bytes, not ", static_cast<int>(part.kind), " and ", part.bytes));
    }
  }
  return absl::OkStatus();
}

// The state is new. It becomes visible once its record is synced.
absl::Status EngineStore::Publish(Lock& lock, const Manifest& manifest) {
  if (absl::Status status = CheckParts(manifest); !status.ok()) return status;
  StateEntry entry;
  entry.boundary = manifest.boundary;
  entry.tenant = AddTenant(manifest.tenant);
  entry.pinned = manifest.pinned;
  entry.holds = TakeAbsentHolds(manifest.state);
  entry.busy = true;
  states_.Touch(&entry, clock_->UnixUs());
  states_.Add(manifest.state, entry);
  absl::Status status = Replace(lock, manifest, nullptr);
  if (status.ok()) {
    states_.Find(manifest.state)->visible = true;
    states_.Find(manifest.state)->busy = false;
  } else {
    if (entry.holds > 0) absent_holds_[manifest.state] = entry.holds;
    states_.Erase(manifest.state);
  }
  changed_.notify_all();
  return status;
}

// The state is there already, and idle.
absl::StatusOr<PutManifestOutcome> EngineStore::PublishAgain(Lock& lock, const Manifest& manifest) {
  StateEntry* entry = states_.Find(manifest.state);
  if (entry->tenant != TenantIndex(manifest.tenant) || entry->boundary != manifest.boundary) {
    return absl::InvalidArgumentError("state: stored already with another tenant or boundary");
  }
  entry->busy = true;
  lock.unlock();
  const absl::StatusOr<Manifest> old = ReadManifest(manifest.tenant, manifest.state);
  lock.lock();
  const auto finish = [&](absl::StatusOr<PutManifestOutcome> outcome) {
    StateEntry* idle = states_.Find(manifest.state);
    idle->busy = false;
    if (outcome.ok()) states_.Touch(idle, clock_->UnixUs());
    changed_.notify_all();
    return outcome;
  };
  if (!old.ok() && !absl::IsDataLoss(old.status())) return finish(old.status());
  const bool same_parts = old.ok() && SortedIds(*old) == SortedIds(manifest);
  if (old.ok() && !same_parts) {
    ++determinism_mismatches_;
    lock.unlock();
    Log(absl::StrCat("DETERMINISM MISMATCH: state ", manifest.state.ToHex(), " at boundary ",
                     manifest.boundary, " was computed again with other bits; numerics ",
                     manifest.numerics));
    lock.lock();
  }
  absl::Status status = old.ok() ? absl::OkStatus() : old.status();
  const bool old_is_whole = old.ok() && KnownDamage(*old).empty();
  if (old_is_whole) {
    return finish(same_parts ? PutManifestOutcome::kAlreadyThere
                             : PutManifestOutcome::kDeterminismMismatch);
  }
  status = CheckParts(manifest);
  if (!status.ok()) return finish(status);
  Manifest replacement = manifest;
  replacement.pinned = states_.Find(manifest.state)->pinned;
  status = Replace(lock, replacement, old.ok() ? &*old : nullptr);
  if (!status.ok()) return finish(status);
  return finish(PutManifestOutcome::kPublished);
}

// Writes the record and moves the references; all or nothing. The state's entry is busy.
absl::Status EngineStore::Replace(Lock& lock, const Manifest& manifest, const Manifest* replaced) {
  const bool kept = states_.Find(manifest.state)->IsKept();
  AddReferences(manifest, kept);  // first: nothing removes the parts from here on
  const int64_t last_use_us = states_.Find(manifest.state)->last_use_us;
  lock.unlock();
  WriteSet writes;
  writes.PutOwned(Family::kMeta, ManifestKey(manifest.tenant, manifest.state),
                  EncodeManifest(manifest));
  writes.PutOwned(Family::kMeta, LastUseKey(manifest.state), EncodeScalar(last_use_us));
  const absl::Status status = engine_->Write(writes, Durability::kSynced);
  lock.lock();
  if (!status.ok()) {
    DropReferences(manifest, kept);
  } else if (replaced != nullptr) {
    DropReferences(*replaced, kept);
  }
  return status;
}

void EngineStore::AddReferences(const Manifest& manifest, bool kept) {
  for (const PartRef& part : manifest.parts) {
    parts_.Change(part.id, [kept](PartEntry& entry) {
      ++entry.references;
      entry.pinned_references += kept ? 1 : 0;
    });
  }
}

void EngineStore::DropReferences(const Manifest& manifest, bool kept) {
  for (const PartRef& part : manifest.parts) {
    parts_.Change(part.id, [kept](PartEntry& entry) {
      --entry.references;
      entry.pinned_references -= kept ? 1 : 0;
    });
  }
}

}  // namespace deltafill
