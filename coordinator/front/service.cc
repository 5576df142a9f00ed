#include "coordinator/front/service.h"

#include <grpcpp/grpcpp.h>

#include "proto/prefill.grpc.pb.h"

namespace deltafill::coordinator {
namespace {

class PrefillServiceImpl final : public v1::PrefillService::Service {
 public:
  explicit PrefillServiceImpl(const CallRunner& runner) : runner_(runner) {}

  grpc::Status Prefill(grpc::ServerContext* server_context, const v1::PrefillRequest* request,
                       grpc::ServerWriter<v1::PrefillEvent>* writer) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::Prefill(runner_.context(), call, *request, Sender(writer));
    });
  }

  grpc::Status PrefillInPieces(
      grpc::ServerContext* server_context,
      grpc::ServerReaderWriter<v1::PrefillEvent, v1::PrefillRequest>* stream) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::PrefillInPieces(
          runner_.context(), call,
          [stream](v1::PrefillRequest* piece) { return stream->Read(piece); },
          [stream](const v1::PrefillEvent& event) { return stream->Write(event); });
    });
  }

  grpc::Status Lookup(grpc::ServerContext* server_context, const v1::LookupRequest* request,
                      v1::LookupResponse* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::Lookup(runner_.context(), call, *request, response);
    });
  }

  grpc::Status FetchState(grpc::ServerContext* server_context, const v1::FetchStateRequest* request,
                          grpc::ServerWriter<v1::FetchStateEvent>* writer) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::FetchState(runner_.context(), call, *request, Sender(writer));
    });
  }

  grpc::Status Decode(grpc::ServerContext* server_context, const v1::DecodeRequest* request,
                      grpc::ServerWriter<v1::DecodeEvent>* writer) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::Decode(runner_.context(), call, *request, Sender(writer));
    });
  }

  grpc::Status ListStates(grpc::ServerContext* server_context, const v1::ListStatesRequest* request,
                          v1::ListStatesResponse* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::ListStates(runner_.context(), call, *request, response);
    });
  }

  grpc::Status GetState(grpc::ServerContext* server_context, const v1::GetStateRequest* request,
                        v1::StateDescription* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::GetState(runner_.context(), call, *request, response);
    });
  }

  grpc::Status DeleteState(grpc::ServerContext* server_context, const v1::StateRequest* request,
                           v1::DeleteStateResponse* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::DeleteState(runner_.context(), call, *request, response);
    });
  }

  grpc::Status PinState(grpc::ServerContext* server_context, const v1::StateRequest* request,
                        v1::StateDescription* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return SetStatePinned(runner_.context(), call, *request, true, response);
    });
  }

  grpc::Status UnpinState(grpc::ServerContext* server_context, const v1::StateRequest* request,
                          v1::StateDescription* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return SetStatePinned(runner_.context(), call, *request, false, response);
    });
  }

  grpc::Status GetServerInfo(grpc::ServerContext* server_context, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* response) override {
    return runner_.Run(server_context, [&](const Call&) {
      return coordinator::GetServerInfo(runner_.context(), response);
    });
  }

 private:
  template <typename Event>
  static SendEvent<Event> Sender(grpc::ServerWriter<Event>* writer) {
    return [writer](const Event& event) { return writer->Write(event); };
  }

  const CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewPrefillService(const CallRunner& runner) {
  return std::make_unique<PrefillServiceImpl>(runner);
}

}  // namespace deltafill::coordinator
