// snapshot show, list, delete.
#include <cstdio>

#include "absl/strings/escaping.h"
#include "client/commands.h"
#include "client/messages.h"
#include "client/snapshot/remembered_directory.h"
#include "client/snapshot/snapshot_calls.h"
#include "client/snapshot/version_name.h"

namespace deltafill::client {
namespace {

Json SummaryJson(const v1::SnapshotDescription& snapshot) {
  const v1::SnapshotSummary& summary = snapshot.summary();
  return {{"name", snapshot.name()},
          {"model", summary.model()},
          {"numerics", summary.numerics()},
          {"tokens", summary.tokens()},
          {"files", summary.files()},
          {"commit", summary.commit()},
          {"created_unix_ms", summary.created_unix_ms()},
          {"updated_unix_ms", summary.updated_unix_ms()},
          {"states", summary.states()},
          {"state_bytes", summary.state_bytes()}};
}

Json ShowJson(const v1::SnapshotDescription& snapshot) {
  Json json = SummaryJson(snapshot);
  Json segments = Json::array();
  uint64_t first_token = snapshot.header_tokens();
  for (const auto& segment : snapshot.segments()) {
    segments.push_back({{"path", segment.path()},
                        {"content_hash", absl::BytesToHexString(segment.content_hash())},
                        {"first_token", first_token},
                        {"tokens", segment.tokens()},
                        {"change_rate", segment.change_rate()},
                        {"first_change", segment.first_change()}});
    first_token += segment.tokens();
  }
  Json checkpoints = Json::array();
  for (const auto& checkpoint : snapshot.checkpoints()) {
    checkpoints.push_back({{"boundary", checkpoint.boundary()},
                           {"state", "st1." + absl::BytesToHexString(checkpoint.state())},
                           {"bytes", checkpoint.bytes()}});
  }
  json["state"] = snapshot.state();
  json["boundary"] = snapshot.boundary();
  json["revision"] = snapshot.revision();
  json["header_tokens"] = snapshot.header_tokens();
  json["resumed_at"] = snapshot.resumed_at();
  json["damage"] = snapshot.damage();
  json["versions"] = Json::array();
  for (const std::string& version : snapshot.versions()) json["versions"].push_back(version);
  json["checkpoints"] = std::move(checkpoints);
  json["segments"] = std::move(segments);
  return json;
}

void PrintShown(const v1::SnapshotDescription& snapshot, bool files) {
  const v1::SnapshotSummary& summary = snapshot.summary();
  std::printf("snapshot  %s\nstate     %s\nmodel     %s\ntokens    %llu in %u files\n",
              snapshot.name().c_str(), snapshot.state().c_str(), summary.model().c_str(),
              Wide(summary.tokens()), summary.files());
  std::printf("states    %u, %llu bytes; the last update resumed at token %llu\n", summary.states(),
              Wide(summary.state_bytes()), Wide(snapshot.resumed_at()));
  if (!summary.commit().empty()) std::printf("commit    %s\n", summary.commit().c_str());
  for (const std::string& version : snapshot.versions()) {
    std::printf("version   %s\n", version.c_str());
  }
  if (!snapshot.damage().empty()) {
    std::printf("damage    %s; an update makes it again\n", snapshot.damage().c_str());
  }
  if (!files) return;
  uint64_t first_token = snapshot.header_tokens();
  for (const auto& segment : snapshot.segments()) {
    std::printf("%10llu %8llu %s %s\n", Wide(first_token), Wide(segment.tokens()),
                first_token + segment.tokens() <= snapshot.resumed_at() ? "reused  " : "computed",
                segment.path().c_str());
    first_token += segment.tokens();
  }
}

}  // namespace

int RunSnapshotShow(const SnapshotOptions& options) {
  SnapshotCalls calls(options.server);
  const absl::StatusOr<std::string> name = FindVersion(calls, options.server, options.name);
  if (!name.ok()) return calls.Fail(name.status());
  v1::SnapshotDescription snapshot;
  const absl::Status status = calls.Get(*name, true, &snapshot);
  if (!status.ok()) return calls.Fail(status);
  if (options.server.json) {
    PrintJson(ShowJson(snapshot));
  } else {
    PrintShown(snapshot, options.files);
  }
  return 0;
}

int RunSnapshotList(const SnapshotListOptions& options) {
  SnapshotCalls calls(options.server);
  Json snapshots = Json::array();
  v1::ListSnapshotsResponse response;
  do {
    const std::string page = response.next_page();
    response.Clear();
    const absl::Status status = calls.List(page, &response);
    if (!status.ok()) return calls.Fail(status);
    for (const v1::SnapshotDescription& snapshot : response.snapshots()) {
      snapshots.push_back(SummaryJson(snapshot));
      if (options.server.json) continue;
      std::printf("%s  %llu tokens  %u files  %u states  %llu bytes\n", snapshot.name().c_str(),
                  Wide(snapshot.summary().tokens()), snapshot.summary().files(),
                  snapshot.summary().states(), Wide(snapshot.summary().state_bytes()));
    }
  } while (!response.next_page().empty());
  if (options.server.json) PrintJson({{"snapshots", std::move(snapshots)}});
  return 0;
}

int RunSnapshotDelete(const SnapshotOptions& options) {
  SnapshotCalls calls(options.server);
  const absl::StatusOr<std::string> name = FindVersion(calls, options.server, options.name);
  if (!name.ok()) return calls.Fail(name.status());
  v1::DeleteSnapshotResponse response;
  const absl::Status status = calls.Delete(*name, &response);
  if (!status.ok()) return calls.Fail(status);
  if (options.name.find('@') == std::string::npos) Forget(options.server, options.name);
  if (options.server.json) {
    PrintJson({{"removed_snapshots", response.removed_snapshots()},
               {"removed_states", response.removed_states()}});
  } else {
    std::printf("removed %llu snapshots and %llu states\n", Wide(response.removed_snapshots()),
                Wide(response.removed_states()));
  }
  return 0;
}

}  // namespace deltafill::client
