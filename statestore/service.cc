#include "statestore/service.h"

#include <grpcpp/impl/service_type.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/statestore.grpc.pb.h"
#include "proto/status_conversion.h"
#include "statestore/manifest_message.h"
#include "statestore/service_parts.h"
#include "statestore/snapshot_record_message.h"
#include "statestore/wire_limits.h"

namespace deltafill {
namespace {

using grpc::ServerContext;

std::span<const uint64_t> ToSpan(const google::protobuf::RepeatedField<uint64_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

template <typename AnyDigest>
absl::Status ReadDigest(const std::string& raw, const char* field, AnyDigest* digest) {
  if (AnyDigest::FromBytes(raw, digest)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", raw.size(), " bytes, must be 32"));
}

class Service final : public v1::StateStoreService::Service {
 public:
  explicit Service(StateStore* store) : store_(store), part_calls_(store) {}

  grpc::Status GetTenantSalt(ServerContext*, const v1::GetTenantSaltRequest* request,
                             v1::GetTenantSaltResponse* response) override {
    const absl::StatusOr<TenantSalt> salt = store_->GetTenantSalt(request->tenant());
    if (salt.ok()) response->set_salt(std::string(salt->view()));
    return ToGrpcStatus(salt.status());
  }

  grpc::Status PutPart(ServerContext*, grpc::ServerReader<v1::PutPartRequest>* reader,
                       v1::PutPartResponse* response) override {
    return ToGrpcStatus(part_calls_.Put(reader, response));
  }

  grpc::Status GetPart(ServerContext*, const v1::GetPartRequest* request,
                       grpc::ServerWriter<v1::GetPartResponse>* writer) override {
    return ToGrpcStatus(part_calls_.Get(*request, writer));
  }

  grpc::Status LeaseParts(ServerContext*, const v1::LeasePartsRequest* request,
                          v1::LeasePartsResponse* response) override {
    return ToGrpcStatus(part_calls_.Lease(*request, response));
  }

  grpc::Status RenewLeases(ServerContext*, const v1::LeasesRequest* request,
                           v1::LeasesResponse*) override {
    return ToGrpcStatus(store_->RenewLeases(ToSpan(request->lease_ids())));
  }

  grpc::Status ReleaseLeases(ServerContext*, const v1::LeasesRequest* request,
                             v1::LeasesResponse*) override {
    return ToGrpcStatus(store_->ReleaseLeases(ToSpan(request->lease_ids())));
  }

  grpc::Status PutManifest(ServerContext*, const v1::PutManifestRequest* request,
                           v1::PutManifestResponse* response) override {
    const absl::StatusOr<Manifest> manifest = FromMessage(request->manifest());
    if (!manifest.ok()) return ToGrpcStatus(manifest.status());
    const absl::StatusOr<PutManifestOutcome> outcome =
        store_->PutManifest(*manifest, ToSpan(request->lease_ids()));
    if (!outcome.ok()) return ToGrpcStatus(outcome.status());
    switch (*outcome) {
      case PutManifestOutcome::kPublished:
        response->set_outcome(v1::PutManifestResponse::OUTCOME_PUBLISHED);
        break;
      case PutManifestOutcome::kAlreadyThere:
        response->set_outcome(v1::PutManifestResponse::OUTCOME_ALREADY_THERE);
        break;
      case PutManifestOutcome::kDeterminismMismatch:
        response->set_outcome(v1::PutManifestResponse::OUTCOME_DETERMINISM_MISMATCH);
        break;
    }
    return grpc::Status::OK;
  }

  grpc::Status GetManifest(ServerContext*, const v1::StoredStateRequest* request,
                           v1::StoredManifest* response) override {
    StateId state;
    absl::Status status = ReadDigest(request->state(), "state", &state);
    if (!status.ok()) return ToGrpcStatus(status);
    const absl::StatusOr<Manifest> manifest = store_->GetManifest(request->tenant(), state);
    if (manifest.ok()) ToMessage(*manifest, response);
    return ToGrpcStatus(manifest.status());
  }

  grpc::Status FindDeepest(ServerContext*, const v1::FindDeepestRequest* request,
                           v1::FindDeepestResponse* response) override {
    const std::string& raw = request->chain();
    if (raw.size() % sizeof(StateId) != 0) {
      return ToGrpcStatus(absl::InvalidArgumentError(
          absl::StrCat("chain: ", raw.size(), " bytes, must be a multiple of 32")));
    }
    std::vector<StateId> chain(raw.size() / sizeof(StateId));
    if (!chain.empty()) std::memcpy(chain.data(), raw.data(), raw.size());
    const absl::StatusOr<FindResult> found =
        store_->FindDeepest(request->tenant(), chain, request->first_boundary(), request->verify());
    if (!found.ok()) return ToGrpcStatus(found.status());
    if (found->manifest) ToMessage(*found->manifest, response->mutable_manifest());
    response->set_chain_index(found->chain_index);
    response->set_miss_reason(found->miss_reason);
    return grpc::Status::OK;
  }

  grpc::Status ListManifests(ServerContext*, const v1::ListManifestsRequest* request,
                             v1::ListManifestsResponse* response) override {
    const absl::StatusOr<ManifestPage> page =
        store_->List(request->tenant(), request->page(), request->limit());
    if (!page.ok()) return ToGrpcStatus(page.status());
    size_t bytes = 0;
    for (const Manifest& manifest : page->manifests) {
      v1::StoredManifest* message = response->add_manifests();
      ToMessage(manifest, message);
      bytes += message->ByteSizeLong();
      if (bytes > kWireListBytesMax) break;
    }
    const size_t sent = response->manifests_size();
    response->set_next_page(sent == page->manifests.size()
                                ? page->next_page
                                : std::string(page->manifests[sent - 1].state.view()));
    return grpc::Status::OK;
  }

  grpc::Status DeleteManifest(ServerContext*, const v1::StoredStateRequest* request,
                              v1::DeleteManifestResponse*) override {
    StateId state;
    absl::Status status = ReadDigest(request->state(), "state", &state);
    if (status.ok()) status = store_->Delete(request->tenant(), state);
    return ToGrpcStatus(status);
  }

  grpc::Status SetManifestPinned(ServerContext*, const v1::SetManifestPinnedRequest* request,
                                 v1::SetManifestPinnedResponse*) override {
    StateId state;
    absl::Status status = ReadDigest(request->state(), "state", &state);
    if (status.ok()) status = store_->SetPinned(request->tenant(), state, request->pinned());
    return ToGrpcStatus(status);
  }

  grpc::Status PutSnapshotRecord(ServerContext*, const v1::StoredSnapshotRecord* request,
                                 v1::PutSnapshotRecordResponse* response) override {
    const absl::StatusOr<SnapshotRecord> record = FromMessage(*request);
    if (!record.ok()) return ToGrpcStatus(record.status());
    const absl::StatusOr<uint64_t> revision = store_->PutSnapshotRecord(*record);
    if (revision.ok()) response->set_revision(*revision);
    return ToGrpcStatus(revision.status());
  }

  grpc::Status GetSnapshotRecord(ServerContext*, const v1::SnapshotRecordRequest* request,
                                 v1::StoredSnapshotRecord* response) override {
    const absl::StatusOr<SnapshotRecord> record =
        store_->GetSnapshotRecord(request->tenant(), request->name());
    if (record.ok()) ToMessage(*record, response);
    return ToGrpcStatus(record.status());
  }

  grpc::Status ListSnapshotRecords(ServerContext*, const v1::ListSnapshotRecordsRequest* request,
                                   v1::ListSnapshotRecordsResponse* response) override {
    const absl::StatusOr<SnapshotRecordPage> page = store_->ListSnapshotRecords(
        request->tenant(), request->prefix(), request->page(), request->limit());
    if (!page.ok()) return ToGrpcStatus(page.status());
    for (const SnapshotRecord& record : page->records) ToMessage(record, response->add_records());
    response->set_next_page(page->next_page);
    return grpc::Status::OK;
  }

  grpc::Status DeleteSnapshotRecord(ServerContext*, const v1::SnapshotRecordRequest* request,
                                    v1::DeleteSnapshotRecordResponse* response) override {
    const absl::StatusOr<uint64_t> removed =
        store_->DeleteSnapshotRecord(request->tenant(), request->name());
    if (removed.ok()) response->set_removed_states(*removed);
    return ToGrpcStatus(removed.status());
  }

  grpc::Status GetStoreStats(ServerContext*, const v1::GetStoreStatsRequest*,
                             v1::GetStoreStatsResponse* response) override {
    const absl::StatusOr<StoreStats> stats = store_->GetStats();
    if (!stats.ok()) return ToGrpcStatus(stats.status());
    response->set_states(stats->states);
    response->set_parts(stats->parts);
    response->set_bytes(stats->bytes);
    response->set_budget_bytes(stats->budget_bytes);
    response->set_evicted_states(stats->evicted_states);
    response->set_quarantined_parts(stats->quarantined_parts);
    response->set_determinism_mismatches(stats->determinism_mismatches);
    return grpc::Status::OK;
  }

 private:
  StateStore* const store_;  // not owned
  PartCalls part_calls_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewStateStoreService(StateStore* store) {
  return std::make_unique<Service>(store);
}

}  // namespace deltafill
