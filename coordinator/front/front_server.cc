#include "coordinator/front/front_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/log.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/service.h"
#include "coordinator/snapshots/snapshot_service.h"

namespace deltafill::coordinator {
namespace {

class FrontServerImpl final : public FrontServer {
 public:
  FrontServerImpl(std::unique_ptr<TenantResolver> resolver, StateStore& store, PromptEngine& engine)
      : resolver_(std::move(resolver)),
        context_(store, engine),
        runner_(context_, *resolver_, stopping_),
        service_(NewPrefillService(runner_)),
        snapshot_service_(NewSnapshotService(runner_)) {}

  ~FrontServerImpl() override { Stop(std::chrono::milliseconds(0)); }

  absl::Status Start(const std::string& listen, const TlsFiles& tls) {
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
        LoadServerCredentials(tls);
    if (!credentials.ok()) return credentials.status();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, *std::move(credentials), &port);
    builder.RegisterService(service_.get());
    builder.RegisterService(snapshot_service_.get());
    builder.SetMaxReceiveMessageSize(kRequestBytesMax);
    builder.SetMaxSendMessageSize(kResponseBytesMax);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 4);
    grpc::ResourceQuota quota("front");
    quota.SetMaxThreads(kConcurrentCallsMax);
    builder.SetResourceQuota(quota);
    // Two services on one port would share callers without anybody noticing.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    const bool has_port =
        listen.substr(0, 5) != "unix:" && listen.substr(0, 14) != "unix-abstract:";
    if (server_ == nullptr || (has_port && port == 0)) {
      return absl::UnavailableError(absl::StrCat("listen: ", listen, " cannot be listened on"));
    }
    address_ = has_port ? absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port) : listen;
    LogNotice(
        absl::StrCat("serving clients on ", address_, tls.certificate.empty() ? "" : " (TLS)"));
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void SetServing(bool serving) override {
    const std::lock_guard lock(stop_mutex_);
    if (stopped_) return;
    if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) {
      health->SetServingStatus(serving);
    }
  }

  void Stop(std::chrono::milliseconds grace) override {
    const std::lock_guard lock(stop_mutex_);
    if (server_ == nullptr || stopped_) return;
    stopped_ = true;
    if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) {
      health->Shutdown();
    }
    stopping_ = true;
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
  }

 private:
  std::atomic<bool> stopping_ = false;
  const std::unique_ptr<TenantResolver> resolver_;
  FrontContext context_;
  const CallRunner runner_;
  const std::unique_ptr<grpc::Service> service_;
  const std::unique_ptr<grpc::Service> snapshot_service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::mutex stop_mutex_;
  bool stopped_ = false;  // under stop_mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<FrontServer>> StartFrontServer(FrontServerOptions options,
                                                              StateStore& store,
                                                              PromptEngine& engine) {
  if (options.resolver == nullptr) options.resolver = NewTrustingResolver();
  absl::Status status = CheckListenAddress(options.listen, *options.resolver);
  if (!status.ok()) return status;
  static const bool kPluginsOn = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(kPluginsOn);
  auto server = std::make_unique<FrontServerImpl>(std::move(options.resolver), store, engine);
  if (status = server->Start(options.listen, options.tls); !status.ok()) return status;
  return server;
}

}  // namespace deltafill::coordinator
