#include "statestore/snapshot_record_message.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/statestore.pb.h"
#include "statestore/records.h"
#include "statestore/sealed_message.h"

namespace deltafill {
namespace {

constexpr char kWhat[] = "snapshot record";
constexpr char kRecordVersion = 1;
constexpr size_t kRecordBytesMax = size_t{4} << 20;
static_assert(kSnapshotContentsBytesMax + kSnapshotSummaryBytesMax + kSnapshotNameBytesMax +
                  kSnapshotHoldsMax * sizeof(StateId) + kTenantBytesMax + 1024 <
              kRecordBytesMax);

}  // namespace

absl::Status ValidateSnapshotName(std::string_view name) {
  if (!name.empty() && name.size() <= kSnapshotNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("snapshot name: ", name.size(), " bytes, must be 1 to ", kSnapshotNameBytesMax));
}

absl::Status ValidateSnapshotRecord(const SnapshotRecord& record) {
  if (absl::Status status = ValidateTenant(record.tenant); !status.ok()) return status;
  if (absl::Status status = ValidateSnapshotName(record.name); !status.ok()) return status;
  const struct {
    const char* field;
    size_t size;
    size_t limit;
    const char* unit;
  } kFields[] = {
      {"summary", record.summary.size(), kSnapshotSummaryBytesMax, "bytes"},
      {"contents", record.contents.size(), kSnapshotContentsBytesMax, "bytes"},
      {"holds", record.holds.size(), kSnapshotHoldsMax, "states"},
  };
  for (const auto& each : kFields) {
    if (each.size <= each.limit) continue;
    return absl::InvalidArgumentError(absl::StrCat("snapshot record: ", each.field, " has ",
                                                   each.size, " ", each.unit, ", limit ",
                                                   each.limit));
  }
  return absl::OkStatus();
}

void ToMessage(const SnapshotRecord& record, v1::StoredSnapshotRecord* message) {
  message->set_tenant(record.tenant);
  message->set_name(record.name);
  message->set_revision(record.revision);
  message->set_summary(record.summary);
  message->set_contents(record.contents);
  message->set_holds(record.holds.data(), record.holds.size() * sizeof(StateId));
}

absl::StatusOr<SnapshotRecord> FromMessage(const v1::StoredSnapshotRecord& message) {
  SnapshotRecord record;
  record.tenant = message.tenant();
  record.name = message.name();
  record.revision = message.revision();
  record.summary = message.summary();
  record.contents = message.contents();
  if (message.holds().size() % sizeof(StateId) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "snapshot record: holds has ", message.holds().size(), " bytes, must be a multiple of 32"));
  }
  record.holds.resize(message.holds().size() / sizeof(StateId));
  if (!record.holds.empty()) {
    std::memcpy(record.holds.data(), message.holds().data(), message.holds().size());
  }
  if (absl::Status status = ValidateSnapshotRecord(record); !status.ok()) return status;
  return record;
}

std::string EncodeSnapshotRecord(const SnapshotRecord& record) {
  v1::StoredSnapshotRecord message;
  ToMessage(record, &message);
  return Seal(kRecordVersion, message);
}

absl::StatusOr<SnapshotRecord> DecodeSnapshotRecord(std::string_view encoded) {
  v1::StoredSnapshotRecord message;
  absl::Status status = Unseal(kWhat, kRecordVersion, kRecordBytesMax, encoded, &message);
  if (!status.ok()) return status;
  absl::StatusOr<SnapshotRecord> record = FromMessage(message);
  if (!record.ok()) return Malformed(kWhat, std::string(record.status().message()));
  return record;
}

}  // namespace deltafill
