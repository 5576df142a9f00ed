// The client of a StateStoreService, as a StateStore.
#include <grpcpp/grpcpp.h>

#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/statestore.grpc.pb.h"
#include "proto/status_conversion.h"
#include "statestore/manifest_message.h"
#include "statestore/records.h"
#include "statestore/remote_parts.h"
#include "statestore/remote_retry.h"
#include "statestore/snapshot_record_message.h"
#include "statestore/wire_limits.h"

namespace deltafill {
namespace {

constexpr int kReconnectBackoffMsMax = 1000;

class RemoteStore final : public StateStore {
 public:
  explicit RemoteStore(std::unique_ptr<v1::StateStoreService::Stub> stub)
      : stub_(std::move(stub)) {}

  absl::StatusOr<TenantSalt> GetTenantSalt(std::string_view tenant) override {
    {
      std::lock_guard lock(salts_mutex_);
      const auto found = salts_.find(tenant);
      if (found != salts_.end()) return found->second;
    }
    v1::GetTenantSaltRequest request;
    request.set_tenant(std::string(tenant));
    v1::GetTenantSaltResponse response;
    const absl::Status status =
        Call(&v1::StateStoreService::Stub::GetTenantSalt, request, &response);
    if (!status.ok()) return status;
    TenantSalt salt;
    if (!TenantSalt::FromBytes(response.salt(), &salt)) {
      return absl::InternalError("the store sent a salt that has not 32 bytes");
    }
    std::lock_guard lock(salts_mutex_);
    salts_.emplace(tenant, salt);
    return salt;
  }

  absl::StatusOr<PartReceipt> PutPart(std::string_view tenant, const PartHeader& header,
                                      LayerPayloads payloads) override {
    absl::StatusOr<PartReceipt> receipt = absl::UnavailableError("not called");
    const absl::Status status = CallWithRetries(kDataDeadline, [&](grpc::ClientContext* context) {
      v1::PutPartResponse response;
      const auto writer = stub_->PutPart(context, &response);
      receipt = SendPart(writer.get(), response, tenant, header, payloads);
      return receipt.status();
    });
    if (!status.ok()) return status;
    return receipt;
  }

  absl::StatusOr<Part> GetPart(const PartId& id, std::span<const uint32_t> layers) override {
    v1::GetPartRequest request;
    request.set_part_id(std::string(id.view()));
    request.mutable_layers()->Add(layers.begin(), layers.end());
    absl::StatusOr<Part> part = absl::UnavailableError("not called");
    const absl::Status status = CallWithRetries(kDataDeadline, [&](grpc::ClientContext* context) {
      part = ReceivePart(stub_->GetPart(context, request).get());
      return part.status();
    });
    if (!status.ok()) return status;
    return part;
  }

  absl::StatusOr<std::vector<PartReceipt>> LeaseParts(std::span<const PartId> parts) override {
    v1::LeasePartsRequest request;
    for (const PartId& part : parts) request.add_part_ids(std::string(part.view()));
    v1::LeasePartsResponse response;
    const absl::Status status = Call(&v1::StateStoreService::Stub::LeaseParts, request, &response);
    if (!status.ok()) return status;
    return ReadLeasedParts(response, parts);
  }

  absl::Status RenewLeases(std::span<const uint64_t> lease_ids) override {
    v1::LeasesRequest request;
    request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
    v1::LeasesResponse response;
    return Call(&v1::StateStoreService::Stub::RenewLeases, request, &response);
  }

  absl::Status ReleaseLeases(std::span<const uint64_t> lease_ids) override {
    v1::LeasesRequest request;
    request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
    v1::LeasesResponse response;
    return Call(&v1::StateStoreService::Stub::ReleaseLeases, request, &response);
  }

  absl::StatusOr<PutManifestOutcome> PutManifest(const Manifest& manifest,
                                                 std::span<const uint64_t> lease_ids) override {
    if (absl::Status status = ValidateManifest(manifest); !status.ok()) return status;
    v1::PutManifestRequest request;
    ToMessage(manifest, request.mutable_manifest());
    request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
    v1::PutManifestResponse response;
    const absl::Status status = Call(&v1::StateStoreService::Stub::PutManifest, request, &response);
    if (!status.ok()) return status;
    switch (response.outcome()) {
      case v1::PutManifestResponse::OUTCOME_PUBLISHED:
        return PutManifestOutcome::kPublished;
      case v1::PutManifestResponse::OUTCOME_ALREADY_THERE:
        return PutManifestOutcome::kAlreadyThere;
      case v1::PutManifestResponse::OUTCOME_DETERMINISM_MISMATCH:
        return PutManifestOutcome::kDeterminismMismatch;
      default:
        return absl::InternalError("the store sent an unknown outcome");
    }
  }

  absl::StatusOr<Manifest> GetManifest(std::string_view tenant, const StateId& state) override {
    v1::StoredManifest response;
    const absl::Status status =
        Call(&v1::StateStoreService::Stub::GetManifest, StateRequestOf(tenant, state), &response);
    if (!status.ok()) return status;
    return FromMessage(response);
  }

  absl::StatusOr<FindResult> FindDeepest(std::string_view tenant, std::span<const StateId> chain,
                                         uint64_t first_boundary, bool verify) override {
    if (chain.size() > kChainLengthMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("chain: ", chain.size(), " keys, limit ", kChainLengthMax));
    }
    v1::FindDeepestRequest request;
    request.set_tenant(std::string(tenant));
    request.set_chain(chain.data(), chain.size_bytes());
    request.set_first_boundary(first_boundary);
    request.set_verify(verify);
    v1::FindDeepestResponse response;
    const absl::Status status = Call(&v1::StateStoreService::Stub::FindDeepest, request, &response,
                                     verify ? kDataDeadline : kControlDeadline);
    if (!status.ok()) return status;
    FindResult result;
    result.miss_reason = response.miss_reason();
    if (!response.has_manifest()) return result;
    absl::StatusOr<Manifest> manifest = FromMessage(response.manifest());
    if (!manifest.ok()) return manifest.status();
    result.manifest = *std::move(manifest);
    result.chain_index = response.chain_index();
    return result;
  }

  absl::StatusOr<ManifestPage> List(std::string_view tenant, std::string_view page,
                                    size_t limit) override {
    v1::ListManifestsRequest request;
    request.set_tenant(std::string(tenant));
    request.set_page(std::string(page));
    request.set_limit(static_cast<uint32_t>(std::min(limit, kListPageMax + 1)));
    v1::ListManifestsResponse response;
    const absl::Status status =
        Call(&v1::StateStoreService::Stub::ListManifests, request, &response);
    if (!status.ok()) return status;
    ManifestPage result;
    result.next_page = response.next_page();
    for (const v1::StoredManifest& message : response.manifests()) {
      absl::StatusOr<Manifest> manifest = FromMessage(message);
      if (!manifest.ok()) return manifest.status();
      result.manifests.push_back(*std::move(manifest));
    }
    return result;
  }

  absl::Status Delete(std::string_view tenant, const StateId& state) override {
    const v1::StoredStateRequest request = StateRequestOf(tenant, state);
    int attempts = 0;
    const absl::Status status =
        CallWithRetries(kControlDeadline, [&](grpc::ClientContext* context) {
          ++attempts;
          v1::DeleteManifestResponse response;
          return FromGrpcStatus(stub_->DeleteManifest(context, request, &response));
        });
    // An attempt whose answer was lost may have removed it.
    return attempts > 1 && absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  absl::Status SetPinned(std::string_view tenant, const StateId& state, bool pinned) override {
    v1::SetManifestPinnedRequest request;
    request.set_tenant(std::string(tenant));
    request.set_state(std::string(state.view()));
    request.set_pinned(pinned);
    v1::SetManifestPinnedResponse response;
    return Call(&v1::StateStoreService::Stub::SetManifestPinned, request, &response);
  }

  absl::StatusOr<uint64_t> PutSnapshotRecord(const SnapshotRecord& record) override {
    if (absl::Status status = ValidateSnapshotRecord(record); !status.ok()) return status;
    v1::StoredSnapshotRecord request;
    ToMessage(record, &request);
    v1::PutSnapshotRecordResponse response;
    int attempts = 0;
    const absl::Status status =
        CallWithRetries(kControlDeadline, [&](grpc::ClientContext* context) {
          ++attempts;
          return FromGrpcStatus(stub_->PutSnapshotRecord(context, request, &response));
        });
    if (status.ok()) return response.revision();
    if (attempts == 1 || !(absl::IsAborted(status) || absl::IsAlreadyExists(status))) return status;
    // An attempt whose answer was lost may have written it.
    const absl::StatusOr<SnapshotRecord> there = GetSnapshotRecord(record.tenant, record.name);
    const bool ours = there.ok() && there->summary == record.summary &&
                      there->contents == record.contents && there->holds == record.holds;
    if (ours) return there->revision;
    return status;
  }

  absl::StatusOr<SnapshotRecord> GetSnapshotRecord(std::string_view tenant,
                                                   std::string_view name) override {
    v1::StoredSnapshotRecord response;
    const absl::Status status = Call(&v1::StateStoreService::Stub::GetSnapshotRecord,
                                     SnapshotRequestOf(tenant, name), &response);
    if (!status.ok()) return status;
    return FromMessage(response);
  }

  absl::StatusOr<SnapshotRecordPage> ListSnapshotRecords(std::string_view tenant,
                                                         std::string_view prefix,
                                                         std::string_view page,
                                                         size_t limit) override {
    v1::ListSnapshotRecordsRequest request;
    request.set_tenant(std::string(tenant));
    request.set_prefix(std::string(prefix));
    request.set_page(std::string(page));
    request.set_limit(static_cast<uint32_t>(std::min(limit, kListPageMax + 1)));
    v1::ListSnapshotRecordsResponse response;
    const absl::Status status =
        Call(&v1::StateStoreService::Stub::ListSnapshotRecords, request, &response);
    if (!status.ok()) return status;
    SnapshotRecordPage result;
    result.next_page = response.next_page();
    for (const v1::StoredSnapshotRecord& message : response.records()) {
      absl::StatusOr<SnapshotRecord> record = FromMessage(message);
      if (!record.ok()) return record.status();
      result.records.push_back(*std::move(record));
    }
    return result;
  }

  absl::StatusOr<uint64_t> DeleteSnapshotRecord(std::string_view tenant,
                                                std::string_view name) override {
    const v1::SnapshotRecordRequest request = SnapshotRequestOf(tenant, name);
    v1::DeleteSnapshotRecordResponse response;
    int attempts = 0;
    const absl::Status status =
        CallWithRetries(kControlDeadline, [&](grpc::ClientContext* context) {
          ++attempts;
          return FromGrpcStatus(stub_->DeleteSnapshotRecord(context, request, &response));
        });
    if (attempts > 1 && absl::IsNotFound(status)) return uint64_t{0};  // as in Delete
    if (!status.ok()) return status;
    return response.removed_states();
  }

  absl::StatusOr<StoreStats> GetStats() override {
    v1::GetStoreStatsResponse response;
    const absl::Status status =
        Call(&v1::StateStoreService::Stub::GetStoreStats, v1::GetStoreStatsRequest(), &response);
    if (!status.ok()) return status;
    StoreStats stats;
    stats.states = response.states();
    stats.parts = response.parts();
    stats.bytes = response.bytes();
    stats.budget_bytes = response.budget_bytes();
    stats.evicted_states = response.evicted_states();
    stats.quarantined_parts = response.quarantined_parts();
    stats.determinism_mismatches = response.determinism_mismatches();
    return stats;
  }

 private:
  template <typename Request, typename Response>
  using UnaryMethod = grpc::Status (v1::StateStoreService::Stub::*)(grpc::ClientContext*,
                                                                    const Request&, Response*);

  template <typename Request, typename Response>
  absl::Status Call(UnaryMethod<Request, Response> method, const Request& request,
                    Response* response, std::chrono::milliseconds deadline = kControlDeadline) {
    return CallWithRetries(deadline, [&](grpc::ClientContext* context) {
      return FromGrpcStatus((stub_.get()->*method)(context, request, response));
    });
  }

  static v1::StoredStateRequest StateRequestOf(std::string_view tenant, const StateId& state) {
    v1::StoredStateRequest request;
    request.set_tenant(std::string(tenant));
    request.set_state(std::string(state.view()));
    return request;
  }

  static v1::SnapshotRecordRequest SnapshotRequestOf(std::string_view tenant,
                                                     std::string_view name) {
    v1::SnapshotRecordRequest request;
    request.set_tenant(std::string(tenant));
    request.set_name(std::string(name));
    return request;
  }

  const std::unique_ptr<v1::StateStoreService::Stub> stub_;
  std::mutex salts_mutex_;
  std::map<std::string, TenantSalt, std::less<>> salts_;  // they never change
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> ConnectStore(const std::string& address) {
  if (address.empty()) return absl::InvalidArgumentError("store address: must not be empty");
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kWireReceiveBytesMax);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectBackoffMsMax);
  // A store whose machine is gone says nothing: a call would wait for its whole deadline.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  return std::make_unique<RemoteStore>(v1::StateStoreService::NewStub(channel));
}

}  // namespace deltafill
