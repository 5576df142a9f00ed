#include "statestore/snapshot_record_message.h"

#include <xxhash.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/statestore.pb.h"
#include "statestore/records.h"

namespace deltafill {
namespace {

constexpr char kRecordVersion = 1;
constexpr size_t kChecksumBytes = sizeof(uint64_t);
constexpr size_t kRecordBytesMax = size_t{4} << 20;
static_assert(kSnapshotContentsBytesMax + kSnapshotSummaryBytesMax + kSnapshotNameBytesMax +
                  kSnapshotHoldsMax * sizeof(StateId) + kTenantBytesMax + 1024 <
              kRecordBytesMax);

absl::Status Malformed(const std::string& what) {
  return absl::DataLossError(absl::StrCat("snapshot record: ", what));
}

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
  std::string encoded(1, kRecordVersion);
  message.AppendToString(&encoded);
  const uint64_t checksum = XXH3_64bits(encoded.data(), encoded.size());
  encoded += EncodeScalar(checksum);
  return encoded;
}

absl::StatusOr<SnapshotRecord> DecodeSnapshotRecord(std::string_view encoded) {
  if (encoded.size() < 1 + kChecksumBytes) return Malformed("cut short");
  if (encoded.size() > kRecordBytesMax) return Malformed("longer than any may be");
  if (encoded[0] != kRecordVersion) return Malformed("unknown version");
  const std::string_view covered = encoded.substr(0, encoded.size() - kChecksumBytes);
  if (DecodeScalar<uint64_t>(encoded.substr(covered.size())) !=
      XXH3_64bits(covered.data(), covered.size())) {
    return Malformed("its checksum does not match");
  }
  v1::StoredSnapshotRecord message;
  if (!message.ParseFromArray(covered.data() + 1, static_cast<int>(covered.size() - 1))) {
    return Malformed("not a message");
  }
  absl::StatusOr<SnapshotRecord> record = FromMessage(message);
  if (!record.ok()) return Malformed(std::string(record.status().message()));
  return record;
}

}  // namespace deltafill
