// What a client sends to make a snapshot: read from its messages, checked against every limit.
#ifndef DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_UPLOAD_H_
#define DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_UPLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deltafill::v1 {
class PutSnapshotRequest;
class PutSnapshotStart;
class StoredSnapshot;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

struct SnapshotUpload {
  SnapshotUpload();
  SnapshotUpload(SnapshotUpload&&) noexcept;
  SnapshotUpload& operator=(SnapshotUpload&&) noexcept;
  ~SnapshotUpload();

  std::unique_ptr<v1::PutSnapshotStart> start;
  std::unique_ptr<v1::StoredSnapshot> stored;  // segments and header_tokens; the rest is not set
  std::vector<uint32_t> tokens;
};

// False at the end of what the client sends.
using ReceiveRequest = std::function<bool(v1::PutSnapshotRequest*)>;

// INVALID_ARGUMENT naming the field and the limit.
absl::StatusOr<SnapshotUpload> ReadUpload(const ReceiveRequest& receive);

// A snapshot's name without, and a commit's full name.
absl::Status CheckBaseName(std::string_view name);
bool IsCommitName(std::string_view text);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_UPLOAD_H_
