// SnapshotRecord <-> protobuf StoredSnapshotRecord, for the disk and for the wire.
#ifndef DELTAFILL_STATESTORE_SNAPSHOT_RECORD_MESSAGE_H_
#define DELTAFILL_STATESTORE_SNAPSHOT_RECORD_MESSAGE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "statestore/snapshot_records.h"

namespace deltafill {

namespace v1 {
class StoredSnapshotRecord;
}

void ToMessage(const SnapshotRecord& record, v1::StoredSnapshotRecord* message);

// INVALID_ARGUMENT naming the field and the limit.
absl::StatusOr<SnapshotRecord> FromMessage(const v1::StoredSnapshotRecord& message);

// Version byte, protobuf StoredSnapshotRecord, XXH3-64 of both.
std::string EncodeSnapshotRecord(const SnapshotRecord& record);

// DATA_LOSS for anything malformed or over a limit.
absl::StatusOr<SnapshotRecord> DecodeSnapshotRecord(std::string_view encoded);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_SNAPSHOT_RECORD_MESSAGE_H_
