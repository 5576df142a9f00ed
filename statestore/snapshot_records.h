// Named records of snapshots: which states a name holds, and what its owner wrote about them. A
// state that a record holds is neither evicted nor deleted; it is freed with the last record that
// holds it, unless it is pinned. What summary and contents mean is the coordinator's affair.
#ifndef DELTAFILL_STATESTORE_SNAPSHOT_RECORDS_H_
#define DELTAFILL_STATESTORE_SNAPSHOT_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/identity.h"

namespace deltafill {

struct SnapshotRecord {
  std::string tenant;
  std::string name;
  uint64_t revision = 0;       // grows with each Put; never used twice for a name
  std::string summary;         // opaque; small, comes with lists
  std::string contents;        // opaque
  std::vector<StateId> holds;  // states of the tenant; may repeat
};

struct SnapshotRecordPage {
  std::vector<SnapshotRecord> records;  // ascending by name; contents and holds are left empty
  std::string next_page;                // "" at the end
};

// Limits; INVALID_ARGUMENT beyond them. A record fits a message of the store's service.
inline constexpr size_t kSnapshotNameBytesMax = 192;
inline constexpr size_t kSnapshotSummaryBytesMax = 4096;
inline constexpr size_t kSnapshotContentsBytesMax = size_t{3} << 20;
inline constexpr size_t kSnapshotHoldsMax = 4096;

// All methods are thread-safe and block. UNAVAILABLE: as in StateStore.
class SnapshotRecords {
 public:
  virtual ~SnapshotRecords() = default;

  // Writes a record, atomically and synced, and returns its new revision. record.revision is the
  // one it replaces; 0: there must be none. The states it holds are held before the record is
  // written, those that only the replaced one held are released after.
  //   ALREADY_EXISTS       revision is 0 and the name is taken
  //   ABORTED              another revision is there: read it again
  //   NOT_FOUND            there is no record to replace
  //   FAILED_PRECONDITION  a state to hold is not there; nothing changed
  virtual absl::StatusOr<uint64_t> PutSnapshotRecord(const SnapshotRecord& record) = 0;

  // NOT_FOUND; DATA_LOSS if the record is damaged (it can be deleted, or put anew with revision 0).
  virtual absl::StatusOr<SnapshotRecord> GetSnapshotRecord(std::string_view tenant,
                                                           std::string_view name) = 0;

  // Names that begin with prefix; limit is 1 to kListPageMax. Damaged records are left out.
  virtual absl::StatusOr<SnapshotRecordPage> ListSnapshotRecords(std::string_view tenant,
                                                                 std::string_view prefix,
                                                                 std::string_view page,
                                                                 size_t limit) = 0;

  // Removes a record, then the states that neither a record nor a pin keeps any more. Returns how
  // many. NOT_FOUND if there is none.
  virtual absl::StatusOr<uint64_t> DeleteSnapshotRecord(std::string_view tenant,
                                                        std::string_view name) = 0;
};

// INVALID_ARGUMENT naming the field and the limit.
absl::Status ValidateSnapshotName(std::string_view name);
absl::Status ValidateSnapshotRecord(const SnapshotRecord& record);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_SNAPSHOT_RECORDS_H_
