#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/listen_address.h"
#include "client/role.h"
#include "client/termination.h"
#include "coordinator/front/log.h"
#include "statestore/service.h"

namespace deltafill::client {
namespace {

// The protocol's own bound (statestore/wire_limits.h asserts it).
constexpr int kStoreMessageBytesMax = 4 << 20;

}  // namespace

int RunStateStore(const StateStoreOptions& options) {
  HoldTerminationSignals();
  const absl::Status listenable = CheckCanListen(options.listen);
  if (!listenable.ok()) return FailRole("--listen", listenable);
  absl::StatusOr<std::unique_ptr<StateStore>> store = OpenStore(options.store);
  if (!store.ok()) return FailRole("--store", store.status());
  const std::unique_ptr<grpc::Service> service = NewStateStoreService(store->get());
  absl::StatusOr<ListeningServer> server =
      Listen(options.listen, service.get(), kStoreMessageBytesMax);
  if (!server.ok()) return FailRole("--listen", server.status());
  coordinator::LogNotice(absl::StrCat("state store on ", server->address));
  WaitForTermination();
  coordinator::LogNotice("stopping");
  server->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  return 0;
}

}  // namespace deltafill::client
