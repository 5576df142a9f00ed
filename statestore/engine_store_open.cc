// Opening a store: rebuilding its tables from the engine's records; the sweeping thread.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {

absl::StatusOr<std::unique_ptr<EngineStore>> EngineStore::Open(
    std::unique_ptr<KeyValueEngine> engine, const EngineStoreOptions& options) {
  std::unique_ptr<EngineStore> store(new EngineStore(std::move(engine), options));
  if (absl::Status status = store->Rebuild(); !status.ok()) return status;
  if (options.sweep_interval.count() > 0) {
    store->sweeper_ = std::thread([raw = store.get()] { raw->RunSweeps(); });
  }
  return store;
}

EngineStore::EngineStore(std::unique_ptr<KeyValueEngine> engine, const EngineStoreOptions& options)
    : engine_(std::move(engine)),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : std::make_shared<StoreClock>()) {}

EngineStore::~EngineStore() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (sweeper_.joinable()) sweeper_.join();
  (void)Sweep();  // last uses; what fails here is only approximate order
}

void EngineStore::Log(const std::string& line) const {
  if (options_.log) {
    options_.log(line);
  } else {
    std::fprintf(stderr, "statestore: %s\n", line.c_str());
  }
}

absl::Status EngineStore::Rebuild() {
  if (absl::Status status = CheckFormat(); !status.ok()) return status;
  // Records that cannot be read are misses; the others are as good as ever.
  for (absl::Status status :
       {RebuildTenants(), RebuildSnapshots(), RebuildParts(), RebuildStates()}) {
    if (absl::IsDataLoss(status)) {
      Log(absl::StrCat("some records are damaged: ", status.ToString()));
    } else if (!status.ok()) {
      return status;
    }
  }
  // No lease outlives a restart: parts without a manifest go. A full disk must not prevent opening.
  if (absl::Status status = Sweep(); !status.ok())
    Log(absl::StrCat("first sweep: ", status.ToString()));
  return absl::OkStatus();
}

absl::Status EngineStore::CheckFormat() {
  std::optional<uint32_t> version;
  const absl::Status status = engine_->Get(Family::kMeta, kFormatKey, [&](std::string_view value) {
    version = DecodeScalar<uint32_t>(value);
  });
  if (absl::IsNotFound(status)) {
    WriteSet writes;
    writes.PutOwned(Family::kMeta, std::string(kFormatKey), EncodeScalar(kStoreFormatVersion));
    return engine_->Write(writes, Durability::kSynced);
  }
  if (!status.ok()) return status;
  if (version == kStoreFormatVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the store has format version ", version.value_or(0),
                   ", this program knows only version ", kStoreFormatVersion));
}

absl::Status EngineStore::RebuildTenants() {
  return engine_->Scan(Family::kMeta, kSaltPrefix, {},
                       [&](std::string_view key, std::string_view value) {
                         const std::string_view tenant = key.substr(kSaltPrefix.size());
                         TenantSalt salt;
                         if (!TenantSalt::FromBytes(value, &salt))
                           return true;  // GetTenantSalt reports it
                         AddTenant(tenant);
                         salts_.emplace(tenant, salt);
                         return true;
                       });
}

absl::Status EngineStore::RebuildParts() {
  return engine_->Scan(
      Family::kMeta, kPartPrefix, {}, [&](std::string_view key, std::string_view value) {
        PartId id;
        if (!DigestOfKey(key, kPartPrefix.size(), &id) || value.empty()) return true;
        const absl::StatusOr<DecodedPart> part = DecodePartHeader(value.substr(1));
        const bool whole = part.ok() && value[0] == 0;
        parts_.Change(id, [&](PartEntry& entry) {
          entry.condition = whole ? PartCondition::kWhole : PartCondition::kDamaged;
          if (!part.ok()) return;
          entry.bytes = part->header.HeaderBytes() + part->header.PayloadBytes();
          entry.kind = part->header.kind;
          entry.layer_count = static_cast<uint16_t>(part->header.layers.size());
        });
        if (!whole) {
          damage_[id] = part.ok() ? "was quarantined" : std::string(part.status().message());
        }
        return true;
      });
}

absl::Status EngineStore::RebuildStates() {
  absl::Status status = engine_->Scan(Family::kMeta, kManifestPrefix, {},
                                      [&](std::string_view key, std::string_view value) {
                                        RebuildState(key, value);
                                        return true;
                                      });
  status.Update(engine_->Scan(Family::kMeta, kLastUsePrefix, {},
                              [&](std::string_view key, std::string_view value) {
                                StateId state;
                                if (!DigestOfKey(key, kLastUsePrefix.size(), &state)) return true;
                                StateEntry* entry = states_.Find(state);
                                const std::optional<int64_t> used = DecodeScalar<int64_t>(value);
                                if (entry == nullptr || !used) return true;
                                StateEntry newer = *entry;
                                newer.last_use_us = *used;
                                states_.Add(state, newer);
                                return true;
                              }));
  return status;
}

void EngineStore::RebuildState(std::string_view key, std::string_view value) {
  const absl::StatusOr<Manifest> manifest = DecodeManifest(value);
  const bool placed = manifest.ok() && IsKeyOf(key, *manifest);
  if (!placed) {
    // Unreadable, so nobody can name its parts: it is a miss, and the sweep takes them.
    Log(absl::StrCat("a manifest is damaged and is dropped: ", manifest.status().ToString()));
    return;
  }
  StateEntry entry;
  entry.boundary = manifest->boundary;
  entry.tenant = AddTenant(manifest->tenant);
  entry.pinned = manifest->pinned;
  entry.holds = TakeAbsentHolds(manifest->state);
  entry.visible = true;
  entry.last_use_us = manifest->created_unix_ms * 1000;
  states_.Add(manifest->state, entry);
  for (const PartRef& part : manifest->parts) {
    if (parts_.Find(part.id) != nullptr) continue;
    parts_.Change(part.id, [&](PartEntry& lost) {
      lost.kind = part.kind;
      lost.condition = PartCondition::kDamaged;
    });
    damage_[part.id] = "is missing";
  }
  AddReferences(*manifest, entry.IsKept());
}

// The tenant's prefix is a hash; manifests of one tenant follow each other, so it is kept.
bool EngineStore::IsKeyOf(std::string_view key, const Manifest& manifest) {
  if (rebuilt_tenant_ != manifest.tenant) {
    rebuilt_tenant_ = manifest.tenant;
    rebuilt_prefix_ = ManifestKeyPrefix(manifest.tenant);
  }
  return key.size() == rebuilt_prefix_.size() + sizeof(StateId) &&
         key.starts_with(rebuilt_prefix_) && key.ends_with(manifest.state.view());
}

void EngineStore::RunSweeps() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto next = std::chrono::steady_clock::now() + options_.sweep_interval;
    changed_.wait_until(lock, next,
                        [&] { return stopping_ || std::chrono::steady_clock::now() >= next; });
    if (stopping_) return;
    lock.unlock();
    if (absl::Status status = Sweep(); !status.ok()) {
      Log(absl::StrCat("sweep: ", status.ToString()));
    }
    lock.lock();
  }
}

}  // namespace deltafill
