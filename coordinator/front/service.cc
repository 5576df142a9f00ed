#include "coordinator/front/service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/log.h"
#include "proto/prefill.grpc.pb.h"
#include "proto/status_conversion.h"

namespace deltafill::coordinator {
namespace {

CallMetadata ReadMetadata(const grpc::ServerContext& server_context) {
  CallMetadata metadata;
  for (const auto& [name, value] : server_context.client_metadata()) {
    metadata.emplace(std::string(name.data(), name.size()),
                     std::string(value.data(), value.size()));
  }
  return metadata;
}

class PrefillServiceImpl final : public v1::PrefillService::Service {
 public:
  PrefillServiceImpl(FrontContext& context, const TenantResolver& resolver,
                     const std::atomic<bool>& stopping)
      : context_(context), resolver_(resolver), stopping_(stopping) {}

  grpc::Status Prefill(grpc::ServerContext* server_context, const v1::PrefillRequest* request,
                       grpc::ServerWriter<v1::PrefillEvent>* writer) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::Prefill(context_, call, *request, Sender(writer));
    });
  }

  grpc::Status Lookup(grpc::ServerContext* server_context, const v1::LookupRequest* request,
                      v1::LookupResponse* response) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::Lookup(context_, call, *request, response);
    });
  }

  grpc::Status FetchState(grpc::ServerContext* server_context, const v1::FetchStateRequest* request,
                          grpc::ServerWriter<v1::FetchStateEvent>* writer) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::FetchState(context_, call, *request, Sender(writer));
    });
  }

  grpc::Status Decode(grpc::ServerContext* server_context, const v1::DecodeRequest* request,
                      grpc::ServerWriter<v1::DecodeEvent>* writer) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::Decode(context_, call, *request, Sender(writer));
    });
  }

  grpc::Status ListStates(grpc::ServerContext* server_context, const v1::ListStatesRequest* request,
                          v1::ListStatesResponse* response) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::ListStates(context_, call, *request, response);
    });
  }

  grpc::Status GetState(grpc::ServerContext* server_context, const v1::GetStateRequest* request,
                        v1::StateDescription* response) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::GetState(context_, call, *request, response);
    });
  }

  grpc::Status DeleteState(grpc::ServerContext* server_context, const v1::StateRequest* request,
                           v1::DeleteStateResponse* response) override {
    return Run(server_context, [&](const Call& call) {
      return coordinator::DeleteState(context_, call, *request, response);
    });
  }

  grpc::Status PinState(grpc::ServerContext* server_context, const v1::StateRequest* request,
                        v1::StateDescription* response) override {
    return Run(server_context, [&](const Call& call) {
      return SetStatePinned(context_, call, *request, true, response);
    });
  }

  grpc::Status UnpinState(grpc::ServerContext* server_context, const v1::StateRequest* request,
                          v1::StateDescription* response) override {
    return Run(server_context, [&](const Call& call) {
      return SetStatePinned(context_, call, *request, false, response);
    });
  }

  grpc::Status GetServerInfo(grpc::ServerContext* server_context, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* response) override {
    return Run(server_context,
               [&](const Call&) { return coordinator::GetServerInfo(context_, response); });
  }

 private:
  template <typename Event>
  static SendEvent<Event> Sender(grpc::ServerWriter<Event>* writer) {
    return [writer](const Event& event) { return writer->Write(event); };
  }

  template <typename Operation>
  grpc::Status Run(grpc::ServerContext* server_context, const Operation& operation) {
    absl::StatusOr<std::string> tenant = resolver_.Resolve(ReadMetadata(*server_context));
    if (!tenant.ok()) return ToGrpcStatus(tenant.status());
    Call call;
    call.tenant = *std::move(tenant);
    call.cancelled = [this, server_context] { return stopping_ || server_context->IsCancelled(); };
    absl::Status status;
    try {
      status = operation(call);
    } catch (const std::exception& exception) {
      // No exceptions of our own; this is memory running out, or a library's.
      LogError(absl::StrCat("a call failed with an exception: ", exception.what()));
      status = absl::InternalError("the call failed inside the service");
    }
    if (status.ok()) return grpc::Status::OK;
    if (absl::IsInternal(status) || absl::IsDataLoss(status)) {
      LogError(absl::StrCat("a call of tenant ", call.tenant, " failed: ", status.ToString()));
    }
    if (absl::IsResourceExhausted(status)) AddRetryDelay(server_context);
    if (stopping_ && absl::IsCancelled(status)) {
      status = absl::UnavailableError("the service is stopping; retrying is safe");
    }
    return ToGrpcStatus(status);
  }

  // Longer, the more prompts wait already.
  void AddRetryDelay(grpc::ServerContext* server_context) const {
    const int64_t delay_ms =
        std::clamp(kRetryDelayMsMin * (1 + int64_t{context_.engine.PromptsQueued()}),
                   kRetryDelayMsMin, kRetryDelayMsMax);
    server_context->AddTrailingMetadata("retry-delay-ms", std::to_string(delay_ms));
  }

  FrontContext& context_;
  const TenantResolver& resolver_;
  const std::atomic<bool>& stopping_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewPrefillService(FrontContext& context,
                                                 const TenantResolver& resolver,
                                                 const std::atomic<bool>& stopping) {
  return std::make_unique<PrefillServiceImpl>(context, resolver, stopping);
}

}  // namespace deltafill::coordinator
