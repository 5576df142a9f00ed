#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/listen_address.h"
#include "client/role.h"
#include "client/termination.h"
#include "coordinator/front/front_server.h"
#include "coordinator/front/log.h"
#include "coordinator/workers/scheduling_service.h"

namespace deltafill::client {

int RunCoordinator(const CoordinatorOptions& options) {
  HoldTerminationSignals();
  absl::StatusOr<std::unique_ptr<coordinator::TenantResolver>> resolver =
      LoadResolver(options.port.credentials_file);
  if (!resolver.ok()) return FailRole("--credentials", resolver.status());
  for (const auto& [flag, address] : {std::pair("--listen", options.port.listen),
                                      std::pair("--worker-listen", options.worker_listen)}) {
    if (absl::Status status = CheckCanListen(address); !status.ok()) return FailRole(flag, status);
  }
  absl::StatusOr<std::unique_ptr<StateStore>> store = ConnectStore(options.store_address);
  if (!store.ok()) return FailRole("--store", store.status());
  auto scheduling =
      coordinator::StartScheduling(ToSchedulingOptions(options.scheduling), store->get());
  if (!scheduling.ok()) return FailRole("scheduling", scheduling.status());
  absl::StatusOr<ListeningServer> workers = Listen(
      options.worker_listen, (*scheduling)->worker_service(), coordinator::kWorkerMessageBytesMax);
  if (!workers.ok()) return FailRole("--worker-listen", workers.status());
  auto front = coordinator::StartFrontServer({options.port.listen,
                                              *std::move(resolver),
                                              {options.port.tls_certificate, options.port.tls_key}},
                                             **store, *(*scheduling)->engine());
  if (!front.ok()) return FailRole("--listen", front.status());
  coordinator::LogNotice(absl::StrCat("workers attach on ", workers->address));
  WarnIfAway(options.store_address, **store);
  WaitForTermination();
  coordinator::LogNotice("stopping");
  (*front)->Stop(std::chrono::seconds(5));
  (*scheduling)->Stop();
  workers->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  return 0;
}

}  // namespace deltafill::client
