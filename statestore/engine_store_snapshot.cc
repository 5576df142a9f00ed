// Snapshot records, and the holds that they put on states.
#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"
#include "statestore/snapshot_record_message.h"

namespace deltafill {
namespace {

absl::Status NoSuchSnapshot(std::string_view name) {
  return absl::NotFoundError(absl::StrCat("no snapshot ", std::string(name)));
}

absl::Status ValidateNames(std::string_view tenant, std::string_view name) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  return ValidateSnapshotName(name);
}

// Whether `put` may take the place of what was read.
absl::Status CheckReplaced(const SnapshotRecord& put, const absl::StatusOr<SnapshotRecord>& old) {
  if (put.revision == 0) {
    if (absl::IsNotFound(old.status()) || absl::IsDataLoss(old.status())) return absl::OkStatus();
    if (!old.ok()) return old.status();
    return absl::AlreadyExistsError(absl::StrCat("snapshot ", put.name, " is there already"));
  }
  if (!old.ok()) return old.status();
  if (old->revision == put.revision) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("snapshot ", put.name, " was changed meanwhile; read it again"));
}

}  // namespace

absl::StatusOr<SnapshotRecord> EngineStore::GetSnapshotRecord(std::string_view tenant,
                                                              std::string_view name) {
  if (absl::Status status = ValidateNames(tenant, name); !status.ok()) return status;
  absl::StatusOr<SnapshotRecord> record = absl::DataLossError("snapshot record: not read");
  absl::Status status =
      engine_->Get(Family::kMeta, SnapshotKey(tenant, name),
                   [&record](std::string_view value) { record = DecodeSnapshotRecord(value); });
  if (absl::IsNotFound(status)) return NoSuchSnapshot(name);
  if (!status.ok()) return status;
  if (record.ok() && (record->tenant != tenant || record->name != name)) {
    return absl::DataLossError("snapshot record: of another snapshot");
  }
  return record;
}

absl::StatusOr<uint64_t> EngineStore::PutSnapshotRecord(const SnapshotRecord& record) {
  if (absl::Status status = ValidateSnapshotRecord(record); !status.ok()) return status;
  const std::lock_guard one_writer(snapshot_mutex_);
  const absl::StatusOr<SnapshotRecord> old = GetSnapshotRecord(record.tenant, record.name);
  if (absl::Status status = CheckReplaced(record, old); !status.ok()) return status;
  SnapshotRecord next = record;
  next.revision = std::max(record.revision + 1, static_cast<uint64_t>(clock_->UnixUs()));

  Lock lock(mutex_);
  absl::Status status;
  size_t held = 0;
  for (; held < next.holds.size(); ++held) {
    status = ChangeHolds(lock, next.tenant, next.holds[held], 1);
    if (!status.ok()) break;
  }
  if (status.ok()) {
    lock.unlock();
    WriteSet writes;
    writes.PutOwned(Family::kMeta, SnapshotKey(next.tenant, next.name), EncodeSnapshotRecord(next));
    status = engine_->Write(writes, Durability::kSynced);
    lock.lock();
  }
  if (!status.ok()) {
    for (size_t i = 0; i < held; ++i) (void)ChangeHolds(lock, next.tenant, next.holds[i], -1);
    return absl::IsNotFound(status) ? absl::FailedPreconditionError(status.message()) : status;
  }
  if (old.ok()) ReleaseHolds(lock, *old);
  return next.revision;
}

absl::StatusOr<uint64_t> EngineStore::DeleteSnapshotRecord(std::string_view tenant,
                                                           std::string_view name) {
  if (absl::Status status = ValidateNames(tenant, name); !status.ok()) return status;
  const std::lock_guard one_writer(snapshot_mutex_);
  const absl::StatusOr<SnapshotRecord> old = GetSnapshotRecord(tenant, name);
  if (!old.ok() && !absl::IsDataLoss(old.status())) return old.status();
  WriteSet writes;
  writes.Delete(Family::kMeta, SnapshotKey(tenant, name));
  if (absl::Status status = engine_->Write(writes, Durability::kSynced); !status.ok()) {
    return status;
  }
  // What a damaged record held is not known any more; it is let go at the next start.
  if (!old.ok()) return uint64_t{0};
  Lock lock(mutex_);
  return ReleaseHolds(lock, *old);
}

absl::StatusOr<SnapshotRecordPage> EngineStore::ListSnapshotRecords(std::string_view tenant,
                                                                    std::string_view prefix,
                                                                    std::string_view page,
                                                                    size_t limit) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  if (limit == 0 || limit > kListPageMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit ", limit, ": must be 1 to ", kListPageMax));
  }
  if (prefix.size() > kSnapshotNameBytesMax || page.size() > kSnapshotNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefix and page: at most ", kSnapshotNameBytesMax, " bytes"));
  }
  const std::string common = SnapshotKey(tenant, prefix);
  std::string from = common;
  if (!page.empty()) {
    from = SnapshotKey(tenant, page);
    from.push_back('\0');  // the first key after that name's
  }
  SnapshotRecordPage result;
  bool more = false;
  absl::Status status =
      engine_->Scan(Family::kMeta, common, from, [&](std::string_view, std::string_view value) {
        absl::StatusOr<SnapshotRecord> record = DecodeSnapshotRecord(value);
        if (!record.ok() || record->tenant != tenant) return true;
        more = result.records.size() == limit;
        if (more) return false;
        record->contents.clear();
        record->holds.clear();
        result.records.push_back(*std::move(record));
        return true;
      });
  if (!status.ok() && !absl::IsDataLoss(status)) return status;
  if (more) result.next_page = result.records.back().name;
  return result;
}

// Adds `by` to the records that hold a state. What keeps a state from eviction keeps its parts, so
// at the first hold and after the last one they are counted anew.
absl::Status EngineStore::ChangeHolds(Lock& lock, std::string_view tenant, const StateId& state,
                                      int by) {
  const absl::StatusOr<StateEntry*> entry = WaitForState(lock, tenant, state);
  if (!entry.ok()) {
    const auto absent = absent_holds_.find(state);
    if (by < 0 && absent != absent_holds_.end() && --absent->second == 0) {
      absent_holds_.erase(absent);
    }
    return entry.status();
  }
  const bool kept = (*entry)->IsKept();
  const bool stays = (*entry)->pinned || static_cast<int>((*entry)->holds) + by > 0;
  if (kept == stays) {
    (*entry)->holds += by;
    return absl::OkStatus();
  }
  (*entry)->busy = true;
  lock.unlock();
  const absl::StatusOr<Manifest> manifest = ReadManifest(tenant, state);
  lock.lock();
  StateEntry* idle = states_.Find(state);
  idle->busy = false;
  if (manifest.ok()) {
    AddReferences(*manifest, stays);
    DropReferences(*manifest, kept);
  }
  // An unreadable state cannot be held, but it can be let go.
  if (manifest.ok() || by < 0) idle->holds += by;
  changed_.notify_all();
  return by < 0 ? absl::OkStatus() : manifest.status();
}

// Lets go of what a record held and removes the states that nothing keeps any more; how many.
uint64_t EngineStore::ReleaseHolds(Lock& lock, const SnapshotRecord& record) {
  uint64_t removed = 0;
  for (const StateId& state : record.holds) {
    if (!ChangeHolds(lock, record.tenant, state, -1).ok()) continue;
    const StateEntry* entry = states_.Find(state);
    if (entry->IsKept() || entry->busy || !entry->visible) continue;
    // A failure leaves it to eviction.
    if (RemoveState(lock, record.tenant, state, Durability::kLater).ok()) ++removed;
  }
  return removed;
}

uint32_t EngineStore::TakeAbsentHolds(const StateId& state) {
  const auto found = absent_holds_.find(state);
  if (found == absent_holds_.end()) return 0;
  const uint32_t holds = found->second;
  absent_holds_.erase(found);
  return holds;
}

absl::Status EngineStore::RebuildSnapshots() {
  return engine_->Scan(
      Family::kMeta, kSnapshotPrefix, {}, [&](std::string_view key, std::string_view value) {
        const absl::StatusOr<SnapshotRecord> record = DecodeSnapshotRecord(value);
        if (!record.ok() || SnapshotKey(record->tenant, record->name) != key) {
          Log(absl::StrCat("a snapshot record is damaged, its states are not held any more: ",
                           record.status().ToString()));
          return true;
        }
        for (const StateId& state : record->holds) ++absent_holds_[state];
        return true;
      });
}

}  // namespace deltafill
