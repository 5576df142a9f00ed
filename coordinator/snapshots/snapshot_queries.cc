// GetTokenizer, GetSnapshot, ListSnapshots, DeleteSnapshot.
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/snapshots/snapshot_operations.h"
#include "coordinator/snapshots/stored_snapshot.h"
#include "proto/snapshot.pb.h"

namespace deltafill::coordinator {

absl::Status GetTokenizer(FrontContext& context, const v1::GetTokenizerRequest& request,
                          v1::TokenizerDescription* response) {
  absl::StatusOr<ServedModel> model = ChooseModel(context.engine.Models(), request.model());
  if (!model.ok()) return model.status();
  if (model->tokenizer_kind.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model: ", model->name, " has no tokenizer; it serves token ids only"));
  }
  response->set_model(model->name);
  response->set_kind(model->tokenizer_kind);
  response->set_file(*model->tokenizer_file);
  response->set_vocabulary(model->vocabulary);
  return absl::OkStatus();
}

absl::Status GetSnapshot(FrontContext& context, const Call& call,
                         const v1::GetSnapshotRequest& request, v1::SnapshotDescription* response) {
  StateStore& store = context.store;
  absl::StatusOr<std::string> name = ResolveSnapshotName(store, call.tenant, request.name());
  if (!name.ok()) return name.status();
  absl::StatusOr<LoadedSnapshot> loaded = LoadSnapshot(store, call.tenant, *name);
  if (!loaded.ok()) return loaded.status();
  DescribeSnapshot(*loaded, request.with_segments(), response);
  const std::string base = name->substr(0, name->find('@'));
  absl::Status status = VisitSnapshots(
      store, call.tenant, base + "@",
      [response](const SnapshotRecord& record) { response->add_versions(record.name); });
  if (!status.ok() || loaded->stored->boundary() == 0) return status;
  StateId state;
  StateId::FromBytes(loaded->stored->state(), &state);
  const absl::Status there = store.GetManifest(call.tenant, state).status();
  if (absl::IsNotFound(there)) {
    response->set_damage(std::string(there.message()));
  } else if (!there.ok()) {
    return there;
  }
  return absl::OkStatus();
}

absl::Status ListSnapshots(FrontContext& context, const Call& call,
                           const v1::ListSnapshotsRequest& request,
                           v1::ListSnapshotsResponse* response) {
  if (request.limit() > kListLimitMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit: ", request.limit(), " is above ", kListLimitMax));
  }
  const size_t limit = request.limit() == 0 ? kListLimitDefault : request.limit();
  absl::StatusOr<SnapshotRecordPage> page =
      context.store.ListSnapshotRecords(call.tenant, "", request.page(), limit);
  if (!page.ok()) return page.status();
  for (const SnapshotRecord& record : page->records) {
    v1::SnapshotDescription* description = response->add_snapshots();
    description->set_name(record.name);
    description->set_revision(record.revision);
    description->mutable_summary()->ParseFromString(record.summary);
  }
  response->set_next_page(page->next_page);
  return absl::OkStatus();
}

absl::Status DeleteSnapshot(FrontContext& context, const Call& call,
                            const v1::DeleteSnapshotRequest& request,
                            v1::DeleteSnapshotResponse* response) {
  StateStore& store = context.store;
  absl::StatusOr<std::string> name = ResolveSnapshotName(store, call.tenant, request.name());
  if (!name.ok()) return name.status();
  std::vector<std::string> names;
  if (name->find('@') == std::string::npos) {
    // Versions first: if this is cut short, the name is still there to delete the rest with.
    absl::Status status =
        VisitSnapshots(store, call.tenant, *name + "@",
                       [&names](const SnapshotRecord& record) { names.push_back(record.name); });
    if (!status.ok()) return status;
  }
  names.push_back(*name);
  for (const std::string& each : names) {
    absl::StatusOr<uint64_t> removed = store.DeleteSnapshotRecord(call.tenant, each);
    if (absl::IsNotFound(removed.status())) continue;
    if (!removed.ok()) return removed.status();
    response->set_removed_snapshots(response->removed_snapshots() + 1);
    response->set_removed_states(response->removed_states() + *removed);
  }
  if (response->removed_snapshots() > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("name: no snapshot ", *name));
}

}  // namespace deltafill::coordinator
