#include "coordinator/front/service.h"

#include <grpcpp/grpcpp.h>

#include "proto/prefill.grpc.pb.h"

namespace deltafill::coordinator {
namespace {

class PrefillServiceImpl final : public v1::PrefillService::Service {
 public:
  explicit PrefillServiceImpl(const CallRunner& runner)
      : context_(runner.context()), runner_(runner) {}

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
    return runner_.Run(server_context, operation);
  }

  FrontContext& context_;
  const CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewPrefillService(const CallRunner& runner) {
  return std::make_unique<PrefillServiceImpl>(runner);
}

}  // namespace deltafill::coordinator
