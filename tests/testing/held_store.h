// A state store that forwards to another one, and holds up or refuses calls when a test wants it.
#ifndef DELTAFILL_TESTS_TESTING_HELD_STORE_H_
#define DELTAFILL_TESTS_TESTING_HELD_STORE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "statestore/store.h"

namespace deltafill::test {

class HeldStore : public StateStore {
 public:
  explicit HeldStore(std::unique_ptr<StateStore> store) : store_(std::move(store)) {}

  void Hold();  // PutPart blocks from now on
  void LetGo();
  int held_puts() const;               // that wait now
  void FailPuts(absl::Status status);  // OK: no more
  void DamageLayer(uint32_t layer);    // of every part, for GetPart
  void HoldLayer(uint32_t layer);      // GetPart of it blocks until LetGo

  absl::StatusOr<TenantSalt> GetTenantSalt(std::string_view tenant) override {
    return store_->GetTenantSalt(tenant);
  }
  absl::StatusOr<PartReceipt> PutPart(std::string_view tenant, const PartHeader& header,
                                      LayerPayloads payloads) override;
  absl::StatusOr<Part> GetPart(const PartId& id, std::span<const uint32_t> layers) override;
  absl::StatusOr<std::vector<PartReceipt>> LeaseParts(std::span<const PartId> parts) override {
    return store_->LeaseParts(parts);
  }
  absl::Status RenewLeases(std::span<const uint64_t> lease_ids) override {
    return store_->RenewLeases(lease_ids);
  }
  absl::Status ReleaseLeases(std::span<const uint64_t> lease_ids) override {
    return store_->ReleaseLeases(lease_ids);
  }
  absl::StatusOr<PutManifestOutcome> PutManifest(const Manifest& manifest,
                                                 std::span<const uint64_t> lease_ids) override {
    return store_->PutManifest(manifest, lease_ids);
  }
  absl::StatusOr<Manifest> GetManifest(std::string_view tenant, const StateId& state) override {
    return store_->GetManifest(tenant, state);
  }
  absl::StatusOr<FindResult> FindDeepest(std::string_view tenant, std::span<const StateId> chain,
                                         uint64_t first_boundary, bool verify) override {
    return store_->FindDeepest(tenant, chain, first_boundary, verify);
  }
  absl::StatusOr<ManifestPage> List(std::string_view tenant, std::string_view page,
                                    size_t limit) override {
    return store_->List(tenant, page, limit);
  }
  absl::Status Delete(std::string_view tenant, const StateId& state) override {
    return store_->Delete(tenant, state);
  }
  absl::Status SetPinned(std::string_view tenant, const StateId& state, bool pinned) override {
    return store_->SetPinned(tenant, state, pinned);
  }
  absl::StatusOr<uint64_t> PutSnapshotRecord(const SnapshotRecord& record) override {
    return store_->PutSnapshotRecord(record);
  }
  absl::StatusOr<SnapshotRecord> GetSnapshotRecord(std::string_view tenant,
                                                   std::string_view name) override {
    return store_->GetSnapshotRecord(tenant, name);
  }
  absl::StatusOr<SnapshotRecordPage> ListSnapshotRecords(std::string_view tenant,
                                                         std::string_view prefix,
                                                         std::string_view page,
                                                         size_t limit) override {
    return store_->ListSnapshotRecords(tenant, prefix, page, limit);
  }
  absl::StatusOr<uint64_t> DeleteSnapshotRecord(std::string_view tenant,
                                                std::string_view name) override {
    return store_->DeleteSnapshotRecord(tenant, name);
  }
  absl::StatusOr<StoreStats> GetStats() override { return store_->GetStats(); }

 private:
  const std::unique_ptr<StateStore> store_;
  mutable std::mutex mutex_;
  std::condition_variable let_go_;
  // Guarded by mutex_.
  bool held_ = false;
  int held_puts_ = 0;
  absl::Status put_error_;
  std::optional<uint32_t> damaged_layer_;
  std::optional<uint32_t> held_layer_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_HELD_STORE_H_
