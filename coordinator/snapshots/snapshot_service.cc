#include "coordinator/snapshots/snapshot_service.h"

#include <grpcpp/grpcpp.h>

#include "coordinator/snapshots/snapshot_operations.h"
#include "proto/snapshot.grpc.pb.h"

namespace deltafill::coordinator {
namespace {

class SnapshotServiceImpl final : public v1::SnapshotService::Service {
 public:
  explicit SnapshotServiceImpl(const CallRunner& runner) : runner_(runner) {}

  grpc::Status GetTokenizer(grpc::ServerContext* server_context,
                            const v1::GetTokenizerRequest* request,
                            v1::TokenizerDescription* response) override {
    return runner_.Run(server_context, [&](const Call&) {
      return coordinator::GetTokenizer(runner_.context(), *request, response);
    });
  }

  grpc::Status PutSnapshot(
      grpc::ServerContext* server_context,
      grpc::ServerReaderWriter<v1::PutSnapshotEvent, v1::PutSnapshotRequest>* stream) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::PutSnapshot(
          runner_.context(), call, speed_,
          [stream](v1::PutSnapshotRequest* request) { return stream->Read(request); },
          [stream](const v1::PutSnapshotEvent& event) { return stream->Write(event); });
    });
  }

  grpc::Status GetSnapshot(grpc::ServerContext* server_context,
                           const v1::GetSnapshotRequest* request,
                           v1::SnapshotDescription* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::GetSnapshot(runner_.context(), call, *request, response);
    });
  }

  grpc::Status ListSnapshots(grpc::ServerContext* server_context,
                             const v1::ListSnapshotsRequest* request,
                             v1::ListSnapshotsResponse* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::ListSnapshots(runner_.context(), call, *request, response);
    });
  }

  grpc::Status DeleteSnapshot(grpc::ServerContext* server_context,
                              const v1::DeleteSnapshotRequest* request,
                              v1::DeleteSnapshotResponse* response) override {
    return runner_.Run(server_context, [&](const Call& call) {
      return coordinator::DeleteSnapshot(runner_.context(), call, *request, response);
    });
  }

 private:
  const CallRunner& runner_;
  MeasuredSpeed speed_{kSecondsPerTokenDefault};
};

}  // namespace

std::unique_ptr<grpc::Service> NewSnapshotService(const CallRunner& runner) {
  return std::make_unique<SnapshotServiceImpl>(runner);
}

}  // namespace deltafill::coordinator
