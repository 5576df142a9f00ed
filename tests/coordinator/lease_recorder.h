// A store that has nothing but leases to renew and release, and remembers which.
#ifndef DELTAFILL_TESTS_COORDINATOR_LEASE_RECORDER_H_
#define DELTAFILL_TESTS_COORDINATOR_LEASE_RECORDER_H_

#include <mutex>
#include <set>
#include <span>
#include <string_view>

#include "statestore/store.h"

namespace deltafill::coordinator::test {

// Thread-safe.
class LeaseRecorder final : public StateStore {
 public:
  std::multiset<uint64_t> released() const {
    const std::lock_guard lock(mutex_);
    return released_;
  }
  std::multiset<uint64_t> renewed() const {
    const std::lock_guard lock(mutex_);
    return renewed_;
  }

  absl::Status RenewLeases(std::span<const uint64_t> ids) override {
    const std::lock_guard lock(mutex_);
    renewed_.insert(ids.begin(), ids.end());
    return absl::OkStatus();
  }
  absl::Status ReleaseLeases(std::span<const uint64_t> ids) override {
    const std::lock_guard lock(mutex_);
    released_.insert(ids.begin(), ids.end());
    return absl::OkStatus();
  }
  absl::StatusOr<TenantSalt> GetTenantSalt(std::string_view) override { return None(); }
  absl::StatusOr<PartReceipt> PutPart(std::string_view, const PartHeader&, LayerPayloads) override {
    return None();
  }
  absl::StatusOr<Part> GetPart(const PartId&, std::span<const uint32_t>) override { return None(); }
  absl::StatusOr<std::vector<PartReceipt>> LeaseParts(std::span<const PartId>) override {
    return None();
  }
  absl::StatusOr<PutManifestOutcome> PutManifest(const Manifest&,
                                                 std::span<const uint64_t>) override {
    return None();
  }
  absl::StatusOr<Manifest> GetManifest(std::string_view, const StateId&) override { return None(); }
  absl::StatusOr<FindResult> FindDeepest(std::string_view, std::span<const StateId>, uint64_t,
                                         bool) override {
    return None();
  }
  absl::StatusOr<ManifestPage> List(std::string_view, std::string_view, size_t) override {
    return None();
  }
  absl::Status Delete(std::string_view, const StateId&) override { return None(); }
  absl::Status SetPinned(std::string_view, const StateId&, bool) override { return None(); }
  absl::StatusOr<uint64_t> PutSnapshotRecord(const SnapshotRecord&) override { return None(); }
  absl::StatusOr<SnapshotRecord> GetSnapshotRecord(std::string_view, std::string_view) override {
    return None();
  }
  absl::StatusOr<SnapshotRecordPage> ListSnapshotRecords(std::string_view, std::string_view,
                                                         std::string_view, size_t) override {
    return None();
  }
  absl::StatusOr<uint64_t> DeleteSnapshotRecord(std::string_view, std::string_view) override {
    return None();
  }
  absl::StatusOr<StoreStats> GetStats() override { return None(); }

 private:
  static absl::Status None() { return absl::UnimplementedError("leases only"); }

  mutable std::mutex mutex_;
  std::multiset<uint64_t> released_;
  std::multiset<uint64_t> renewed_;
};

}  // namespace deltafill::coordinator::test

#endif  // DELTAFILL_TESTS_COORDINATOR_LEASE_RECORDER_H_
