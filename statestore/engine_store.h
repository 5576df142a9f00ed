// The store's rules over any engine. One operation a file: engine_store_*.cc.
//
// Locking: mutex_ guards the tables and is never held while the engine reads or writes. An
// operation that changes an entry on disk marks it busy, lets go of the lock, writes, takes the
// lock again and finishes; others that need the entry wait on changed_. Entries become busy in one
// order only (state, then its parts, all at once), and nobody waits while holding busy entries, so
// there is no deadlock. Eviction and PutManifest are thereby serialised for each part.
#ifndef DELTAFILL_STATESTORE_ENGINE_STORE_H_
#define DELTAFILL_STATESTORE_ENGINE_STORE_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "statestore/key_value_engine.h"
#include "statestore/lease_table.h"
#include "statestore/part_table.h"
#include "statestore/state_table.h"
#include "statestore/store.h"
#include "statestore/store_clock.h"

namespace deltafill {

struct EngineStoreOptions {
  uint64_t budget_bytes = 0;  // as in StoreOptions
  std::function<void(const std::string& line)> log;
  std::shared_ptr<StoreClock> clock;                 // nullptr: the system's
  std::chrono::milliseconds sweep_interval{15'000};  // 0: no thread; call Sweep
};

class EngineStore final : public StateStore {
 public:
  // Rebuilds the tables from the engine's records and removes what nothing holds.
  static absl::StatusOr<std::unique_ptr<EngineStore>> Open(std::unique_ptr<KeyValueEngine> engine,
                                                           const EngineStoreOptions& options);
  ~EngineStore() override;

  absl::StatusOr<TenantSalt> GetTenantSalt(std::string_view tenant) override;
  absl::StatusOr<PartReceipt> PutPart(std::string_view tenant, const PartHeader& header,
                                      LayerPayloads payloads) override;
  absl::StatusOr<Part> GetPart(const PartId& id, std::span<const uint32_t> layers) override;
  absl::StatusOr<std::vector<PartReceipt>> LeaseParts(std::span<const PartId> parts) override;
  absl::Status RenewLeases(std::span<const uint64_t> lease_ids) override;
  absl::Status ReleaseLeases(std::span<const uint64_t> lease_ids) override;
  absl::StatusOr<PutManifestOutcome> PutManifest(const Manifest& manifest,
                                                 std::span<const uint64_t> lease_ids) override;
  absl::StatusOr<Manifest> GetManifest(std::string_view tenant, const StateId& state) override;
  absl::StatusOr<FindResult> FindDeepest(std::string_view tenant, std::span<const StateId> chain,
                                         uint64_t first_boundary, bool verify) override;
  absl::StatusOr<ManifestPage> List(std::string_view tenant, std::string_view page,
                                    size_t limit) override;
  absl::Status Delete(std::string_view tenant, const StateId& state) override;
  absl::Status SetPinned(std::string_view tenant, const StateId& state, bool pinned) override;
  absl::StatusOr<uint64_t> PutSnapshotRecord(const SnapshotRecord& record) override;
  absl::StatusOr<SnapshotRecord> GetSnapshotRecord(std::string_view tenant,
                                                   std::string_view name) override;
  absl::StatusOr<SnapshotRecordPage> ListSnapshotRecords(std::string_view tenant,
                                                         std::string_view prefix,
                                                         std::string_view page,
                                                         size_t limit) override;
  absl::StatusOr<uint64_t> DeleteSnapshotRecord(std::string_view tenant,
                                                std::string_view name) override;
  absl::StatusOr<StoreStats> GetStats() override;

  // Ends leases that ran out, removes parts that nothing holds, writes last uses down; reads all
  // parts if the engine suspects damage.
  absl::Status Sweep();

 private:
  using Lock = std::unique_lock<std::mutex>;

  EngineStore(std::unique_ptr<KeyValueEngine> engine, const EngineStoreOptions& options);

  // engine_store_open.cc
  absl::Status Rebuild();
  absl::Status CheckFormat();
  absl::Status RebuildTenants();
  absl::Status RebuildParts();
  absl::Status RebuildStates();
  void RebuildState(std::string_view key, std::string_view value);
  bool IsKeyOf(std::string_view key, const Manifest& manifest);
  void RunSweeps();
  void Log(const std::string& line) const;

  // engine_store_salt.cc. The index of a tenant in tenants_; UINT32_MAX if it is unknown.
  uint32_t TenantIndex(std::string_view tenant) const;
  uint32_t AddTenant(std::string_view tenant);

  // engine_store_put_part.cc
  bool IsThere(Lock& lock, const PartId& id);
  absl::Status WritePart(Lock& lock, const PartId& id, const std::string& encoded_header,
                         LayerPayloads payloads);

  // engine_store_lease.cc
  absl::Status CheckLeaseRoom(size_t more) const;
  uint64_t AddLease(const PartId& id);
  void DropLease(uint64_t lease_id);
  void DropExpiredLeases();

  // engine_store_get_part.cc
  // Reads and verifies; appends the layers to payload unless it is nullptr.
  absl::StatusOr<PartHeader> ReadPart(const PartId& id, std::span<const uint32_t> layers,
                                      std::vector<std::byte>* payload);
  absl::StatusOr<PartHeader> TryReadPart(const PartId& id, std::span<const uint32_t> layers,
                                         std::vector<std::byte>* payload);
  absl::StatusOr<PartHeader> ReadPartUnchecked(const PartId& id, std::span<const uint32_t> layers,
                                               std::vector<std::byte>* payload);
  absl::Status Quarantine(const PartId& id, uint32_t generation, const std::string& reason);
  void RecordQuarantine(const PartId& id);
  uint32_t LayerCount(const PartId& id) const;
  void ScrubParts();
  std::string DamageReason(const PartId& id) const;
  // "" if every part of the manifest is whole as far as known.
  std::string KnownDamage(const Manifest& manifest) const;

  // engine_store_put_manifest.cc
  void WaitUntilIdle(Lock& lock, const Manifest& manifest);
  absl::Status CheckParts(const Manifest& manifest) const;
  absl::StatusOr<PutManifestOutcome> PublishAgain(Lock& lock, const Manifest& manifest);
  absl::Status Publish(Lock& lock, const Manifest& manifest);
  absl::Status Replace(Lock& lock, const Manifest& manifest, const Manifest* replaced);
  // kept: the state is pinned, or held by a snapshot.
  void AddReferences(const Manifest& manifest, bool kept);
  void DropReferences(const Manifest& manifest, bool kept);

  // engine_store_manifest.cc
  absl::StatusOr<Manifest> ReadManifest(std::string_view tenant, const StateId& state);
  // The tenant's visible state, once nobody else is changing it; NOT_FOUND otherwise.
  absl::StatusOr<StateEntry*> WaitForState(Lock& lock, std::string_view tenant,
                                           const StateId& state);

  // engine_store_snapshot.cc
  absl::Status ChangeHolds(Lock& lock, std::string_view tenant, const StateId& state, int by);
  uint64_t ReleaseHolds(Lock& lock, const SnapshotRecord& record);
  uint32_t TakeAbsentHolds(const StateId& state);
  absl::Status RebuildSnapshots();

  // engine_store_find.cc
  bool ProbeDeepest(std::string_view tenant, std::span<const StateId> chain,
                    uint64_t first_boundary, size_t* next, std::string* reasons);
  absl::Status CheckState(const Manifest& manifest, bool verify);

  // engine_store_remove.cc
  absl::Status RemoveState(Lock& lock, const std::string& tenant, const StateId& state,
                           Durability durability);
  absl::Status RemoveLooseParts(Lock& lock);
  std::vector<PartId> TakeLooseParts(size_t limit, WriteSet* writes);
  void FinishRemoval(const std::vector<PartId>& parts, bool removed);
  absl::Status MakeRoom(Lock& lock);

  const std::unique_ptr<KeyValueEngine> engine_;
  const EngineStoreOptions options_;
  const std::shared_ptr<StoreClock> clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // an entry stopped being busy, or the store stops

  // Guarded by mutex_.
  PartTable parts_;
  StateTable states_;
  LeaseTable leases_;
  absl::flat_hash_map<PartId, std::string, DigestHash> damage_;  // reasons of damaged parts
  // What records hold of states that are lost; a state that is published again takes them over.
  absl::flat_hash_map<StateId, uint32_t, DigestHash> absent_holds_;
  std::vector<std::string> tenants_;
  std::map<std::string, uint32_t, std::less<>> tenant_indices_;
  std::map<std::string, TenantSalt, std::less<>> salts_;
  uint32_t latest_generation_ = 0;  // of parts; never used twice
  int removals_ = 0;                // removals of states that are being written
  uint64_t evicted_states_ = 0;
  uint64_t quarantined_parts_ = 0;
  uint64_t determinism_mismatches_ = 0;
  bool stopping_ = false;

  // Used while opening only.
  std::string rebuilt_tenant_;
  std::string rebuilt_prefix_;

  std::mutex salt_mutex_;      // one maker of salts at a time; taken before mutex_
  std::mutex snapshot_mutex_;  // one writer of snapshot records at a time; taken before mutex_
  std::thread sweeper_;
};

// Not-found texts that must not tell an absent state from another tenant's.
absl::Status NoSuchState(const StateId& state);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_ENGINE_STORE_H_
