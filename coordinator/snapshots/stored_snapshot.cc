#include "coordinator/snapshots/stored_snapshot.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/handle.h"
#include "coordinator/front/lower_hex.h"
#include "coordinator/snapshots/snapshot_limits.h"
#include "coordinator/snapshots/snapshot_upload.h"
#include "proto/snapshot.pb.h"

namespace deltafill::coordinator {
namespace {

absl::Status NoSuchSnapshot(std::string_view name) {
  return absl::NotFoundError(
      absl::StrCat("name: no snapshot ", std::string(name), "; ListSnapshots tells what there is"));
}

absl::Status Damaged(std::string_view name, std::string_view why) {
  return absl::DataLossError(absl::StrCat("snapshot ", std::string(name),
                                          ": its record is damaged (", std::string(why),
                                          "); delete it and create it again"));
}

bool IsCommitPrefix(std::string_view text) {
  return text.size() >= kCommitDigitsMin && text.size() <= 64 && IsLowerHex(text);
}

}  // namespace

LoadedSnapshot::LoadedSnapshot()
    : summary(std::make_unique<v1::SnapshotSummary>()),
      stored(std::make_unique<v1::StoredSnapshot>()) {}
LoadedSnapshot::LoadedSnapshot(LoadedSnapshot&&) noexcept = default;
LoadedSnapshot& LoadedSnapshot::operator=(LoadedSnapshot&&) noexcept = default;
LoadedSnapshot::~LoadedSnapshot() = default;

absl::StatusOr<std::string> ResolveSnapshotName(StateStore& store, std::string_view tenant,
                                                std::string_view name) {
  const size_t at = name.find('@');
  if (absl::Status status = CheckBaseName(name.substr(0, at)); !status.ok()) return status;
  if (at == std::string_view::npos) return std::string(name);
  const std::string_view commit = name.substr(at + 1);
  if (!IsCommitPrefix(commit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: after @ comes a commit, ", kCommitDigitsMin, " to 64 of [0-9a-f]"));
  }
  if (IsCommitName(commit)) return std::string(name);
  absl::StatusOr<SnapshotRecordPage> page = store.ListSnapshotRecords(tenant, name, "", 2);
  if (!page.ok()) return page.status();
  if (page->records.empty()) return NoSuchSnapshot(name);
  if (page->records.size() == 1) return page->records.front().name;
  return absl::InvalidArgumentError(
      absl::StrCat("name: ", std::string(name), " means several versions; give more digits"));
}

absl::StatusOr<LoadedSnapshot> LoadSnapshot(StateStore& store, std::string_view tenant,
                                            const std::string& name) {
  absl::StatusOr<SnapshotRecord> record = store.GetSnapshotRecord(tenant, name);
  if (absl::IsNotFound(record.status())) return NoSuchSnapshot(name);
  if (absl::IsDataLoss(record.status())) {
    return Damaged(name, std::string(record.status().message()));
  }
  if (!record.ok()) return record.status();
  LoadedSnapshot loaded;
  loaded.name = name;
  loaded.revision = record->revision;
  const bool whole = loaded.summary->ParseFromString(record->summary) &&
                     loaded.stored->ParseFromString(record->contents) &&
                     loaded.stored->state().size() == sizeof(StateId);
  if (!whole) return Damaged(name, "not the form that this program writes");
  return loaded;
}

absl::Status SaveSnapshot(StateStore& store, std::string_view tenant, LoadedSnapshot* loaded) {
  SnapshotRecord record;
  record.tenant = std::string(tenant);
  record.name = loaded->name;
  record.revision = loaded->revision;
  uint64_t bytes = 0;
  for (const v1::SnapshotCheckpoint& checkpoint : loaded->stored->checkpoints()) {
    StateId state;
    if (!StateId::FromBytes(checkpoint.state(), &state)) {
      return absl::InternalError("a checkpoint's state id has not 32 bytes");
    }
    record.holds.push_back(state);
    bytes += checkpoint.bytes();
  }
  loaded->summary->set_states(static_cast<uint32_t>(record.holds.size()));
  loaded->summary->set_state_bytes(bytes);
  record.summary = loaded->summary->SerializeAsString();
  record.contents = loaded->stored->SerializeAsString();
  if (record.contents.size() > kSnapshotContentsBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("segments: paths and hashes of ", loaded->stored->segments_size(),
                     " files take ", record.contents.size(), " bytes, limit ",
                     kSnapshotContentsBytesMax, "; leave files out with a .deltafillignore"));
  }
  const absl::StatusOr<uint64_t> revision = store.PutSnapshotRecord(record);
  if (!revision.ok()) return revision.status();
  loaded->revision = *revision;
  return absl::OkStatus();
}

void DescribeSnapshot(const LoadedSnapshot& loaded, bool with_segments,
                      v1::SnapshotDescription* description) {
  const v1::StoredSnapshot& stored = *loaded.stored;
  description->set_name(loaded.name);
  description->set_revision(loaded.revision);
  *description->mutable_summary() = *loaded.summary;
  PrefixRef ref;
  StateId::FromBytes(stored.state(), &ref.state);
  ref.zero = stored.boundary() == 0;
  ref.tail.assign(stored.tail().begin(), stored.tail().end());
  if (ref.tail.size() <= kTailTokensMax) description->set_state(EncodePrefixRef(ref));
  description->set_boundary(stored.boundary());
  description->set_header_tokens(stored.header_tokens());
  description->set_resumed_at(stored.resumed_at());
  *description->mutable_checkpoints() = stored.checkpoints();
  if (with_segments) *description->mutable_segments() = stored.segments();
}

absl::Status VisitSnapshots(StateStore& store, std::string_view tenant, const std::string& prefix,
                            const std::function<void(const SnapshotRecord&)>& visit) {
  std::string page;
  do {
    absl::StatusOr<SnapshotRecordPage> listed =
        store.ListSnapshotRecords(tenant, prefix, page, kListPageMax);
    if (!listed.ok()) return listed.status();
    for (const SnapshotRecord& record : listed->records) visit(record);
    page = listed->next_page;
  } while (!page.empty());
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> TrimVersions(StateStore& store, std::string_view tenant,
                                      const std::string& name, size_t versions_max) {
  std::vector<std::pair<int64_t, std::string>> versions;  // oldest first, once sorted
  absl::Status status =
      VisitSnapshots(store, tenant, name + "@", [&](const SnapshotRecord& record) {
        v1::SnapshotSummary summary;
        summary.ParseFromString(record.summary);
        versions.emplace_back(summary.updated_unix_ms(), record.name);
      });
  if (!status.ok()) return status;
  std::sort(versions.begin(), versions.end());
  uint64_t freed = 0;
  for (size_t i = 0; i + versions_max < versions.size(); ++i) {
    absl::StatusOr<uint64_t> removed = store.DeleteSnapshotRecord(tenant, versions[i].second);
    if (!removed.ok() && !absl::IsNotFound(removed.status())) return removed.status();
    freed += removed.value_or(0);
  }
  return freed;
}

}  // namespace deltafill::coordinator
