// From a snapshot's name to its record and back.
#ifndef DELTAFILL_COORDINATOR_SNAPSHOTS_STORED_SNAPSHOT_H_
#define DELTAFILL_COORDINATOR_SNAPSHOTS_STORED_SNAPSHOT_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"

namespace deltafill::v1 {
class SnapshotDescription;
class SnapshotSummary;
class StoredSnapshot;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

struct LoadedSnapshot {
  LoadedSnapshot();
  LoadedSnapshot(LoadedSnapshot&&) noexcept;
  LoadedSnapshot& operator=(LoadedSnapshot&&) noexcept;
  ~LoadedSnapshot();

  std::string name;
  uint64_t revision = 0;
  std::unique_ptr<v1::SnapshotSummary> summary;
  std::unique_ptr<v1::StoredSnapshot> stored;
};

// NAME, or NAME@ and a commit's first digits, to the name of a record. NOT_FOUND, INVALID_ARGUMENT.
absl::StatusOr<std::string> ResolveSnapshotName(StateStore& store, std::string_view tenant,
                                                std::string_view name);

// NOT_FOUND; DATA_LOSS if the record is damaged.
absl::StatusOr<LoadedSnapshot> LoadSnapshot(StateStore& store, std::string_view tenant,
                                            const std::string& name);

// loaded.revision is the one that is replaced, and then the new one. INVALID_ARGUMENT if it has
// more to record than a record holds; otherwise as PutSnapshotRecord.
absl::Status SaveSnapshot(StateStore& store, std::string_view tenant, LoadedSnapshot* loaded);

// Without versions and damage.
void DescribeSnapshot(const LoadedSnapshot& loaded, bool with_segments,
                      v1::SnapshotDescription* description);

// Every record whose name begins with prefix, ascending; stops at the first failure.
absl::Status VisitSnapshots(StateStore& store, std::string_view tenant, const std::string& prefix,
                            const std::function<void(const SnapshotRecord&)>& visit);

// Forgets a snapshot's oldest versions until versions_max are left; returns the states freed.
absl::StatusOr<uint64_t> TrimVersions(StateStore& store, std::string_view tenant,
                                      const std::string& name, size_t versions_max);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SNAPSHOTS_STORED_SNAPSHOT_H_
