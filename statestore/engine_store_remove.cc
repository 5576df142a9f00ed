// Removing states and parts: Delete, eviction to the budget, the sweep.
#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {
namespace {

constexpr size_t kPartsPerRemoval = 256;
constexpr size_t kLastUsesPerSweep = 65'536;

}  // namespace

absl::Status EngineStore::Delete(std::string_view tenant, const StateId& state) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  Lock lock(mutex_);
  const absl::StatusOr<StateEntry*> entry = WaitForState(lock, tenant, state);
  if (!entry.ok()) return entry.status();
  if ((*entry)->holds > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state ", state.ToHex(), " is held by a snapshot; it goes when that is deleted"));
  }
  return RemoveState(lock, std::string(tenant), state, Durability::kSynced);
}

// The state is visible and idle. Removes its record and, in the same batch, parts that nothing
// holds any more; if the write fails, all is as before.
absl::Status EngineStore::RemoveState(Lock& lock, const std::string& tenant, const StateId& state,
                                      Durability durability) {
  StateEntry* entry = states_.Find(state);
  const bool kept = entry->IsKept();
  entry->busy = true;
  entry->visible = false;
  ++removals_;
  lock.unlock();
  const absl::StatusOr<Manifest> manifest = ReadManifest(tenant, state);
  lock.lock();
  absl::Status status;
  if (!manifest.ok() && absl::IsUnavailable(manifest.status())) {
    status = manifest.status();
  } else {
    WriteSet writes;
    writes.Delete(Family::kMeta, ManifestKey(tenant, state));
    writes.Delete(Family::kMeta, LastUseKey(state));
    // A damaged manifest does not tell its parts; they go at the next start.
    if (manifest.ok()) DropReferences(*manifest, kept);
    const std::vector<PartId> parts = TakeLooseParts(kPartsPerRemoval, &writes);
    lock.unlock();
    status = engine_->Write(writes, durability);
    lock.lock();
    if (!status.ok() && manifest.ok()) AddReferences(*manifest, kept);
    FinishRemoval(parts, status.ok());
  }
  --removals_;
  if (status.ok()) {
    states_.Erase(state);
  } else {
    states_.Find(state)->visible = true;
    states_.Find(state)->busy = false;
  }
  changed_.notify_all();
  return status;
}

// Marks loose parts busy and absent, and adds their deletion to the batch.
std::vector<PartId> EngineStore::TakeLooseParts(size_t limit, WriteSet* writes) {
  std::vector<PartId> taken;
  for (const PartId& id : parts_.loose()) {
    if (taken.size() == limit) break;
    taken.push_back(id);
  }
  for (const PartId& id : taken) {
    const uint32_t layer_count = parts_.Find(id)->layer_count;
    writes->Delete(Family::kMeta, PartRecordKey(id));
    for (uint32_t i = 0; i < layer_count; ++i) writes->Delete(Family::kParts, LayerKey(id, i));
    parts_.Change(id, [](PartEntry& entry) {
      entry.busy = true;
      entry.condition = PartCondition::kAbsent;
    });
  }
  return taken;
}

void EngineStore::FinishRemoval(const std::vector<PartId>& parts, bool removed) {
  for (const PartId& id : parts) {
    if (removed) {
      parts_.Erase(id);
      damage_.erase(id);
      continue;
    }
    const bool damaged = damage_.contains(id);
    parts_.Change(id, [damaged](PartEntry& entry) {
      entry.busy = false;
      entry.condition = damaged ? PartCondition::kDamaged : PartCondition::kWhole;
    });
  }
}

absl::Status EngineStore::RemoveLooseParts(Lock& lock) {
  while (!parts_.loose().empty()) {
    WriteSet writes;
    const std::vector<PartId> parts = TakeLooseParts(kPartsPerRemoval, &writes);
    ++removals_;
    lock.unlock();
    const absl::Status status = engine_->Write(writes, Durability::kLater);
    lock.lock();
    --removals_;
    FinishRemoval(parts, status.ok());
    changed_.notify_all();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Evicts until the parts, the new one included, fit into the budget.
absl::Status EngineStore::MakeRoom(Lock& lock) {
  if (options_.budget_bytes == 0) return absl::OkStatus();
  DropExpiredLeases();
  while (parts_.bytes() > options_.budget_bytes) {
    const std::optional<StateId> oldest =
        parts_.held_bytes() > options_.budget_bytes ? std::nullopt : states_.LeastRecentlyUsed();
    absl::Status status;
    if (!parts_.loose().empty()) {
      status = RemoveLooseParts(lock);
    } else if (oldest) {
      const std::string tenant = tenants_[states_.Find(*oldest)->tenant];
      status = RemoveState(lock, tenant, *oldest, Durability::kLater);
      if (status.ok()) ++evicted_states_;
    } else if (removals_ > 0) {
      changed_.wait(lock);  // another operation is making room
    } else {
      return absl::ResourceExhaustedError(
          absl::StrCat("the store's budget of ", options_.budget_bytes, " bytes is full, and ",
                       parts_.held_bytes(), " bytes are leased or of pinned or held states"));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status EngineStore::Sweep() {
  if (engine_->TakeDamageSuspicion()) ScrubParts();
  Lock lock(mutex_);
  DropExpiredLeases();
  absl::Status status = RemoveLooseParts(lock);
  const std::vector<std::pair<StateId, int64_t>> used = states_.TakeDirty(kLastUsesPerSweep);
  lock.unlock();
  if (used.empty()) return status;
  WriteSet writes;
  for (const auto& [state, last_use_us] : used) {
    writes.PutOwned(Family::kMeta, LastUseKey(state), EncodeScalar(last_use_us));
  }
  status.Update(engine_->Write(writes, Durability::kLater));
  return status;
}

}  // namespace deltafill
