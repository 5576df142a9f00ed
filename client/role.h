// What the commands that run a role share: servers on ports, the store, error exits.
#ifndef DELTAFILL_CLIENT_ROLE_H_
#define DELTAFILL_CLIENT_ROLE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/options.h"
#include "coordinator/front/tenant_resolver.h"
#include "coordinator/workers/scheduling_service.h"
#include "statestore/store.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace deltafill::client {

// Prints "deltafill: what: message" and returns the exit code: 2 for INVALID_ARGUMENT, otherwise 1.
int FailRole(const std::string& what, const absl::Status& status);

struct ListeningServer {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // host:port with the real port
};

// Serves one internal service on `listen` (port 0: any). UNAVAILABLE if the port cannot be had,
// for instance because another process has it.
absl::StatusOr<ListeningServer> Listen(const std::string& listen, grpc::Service* service,
                                       int message_bytes_max);

// A warning in the log if a state store of another process does not answer, within some seconds:
// it may come later.
void WarnIfAway(const std::string& address, StateStore& store);

absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(const StoreRoleOptions& options);

// nullptr: no credentials were configured.
absl::StatusOr<std::unique_ptr<coordinator::TenantResolver>> LoadResolver(
    const std::string& credentials_file);

coordinator::SchedulingOptions ToSchedulingOptions(const SchedulingOptions& options);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_ROLE_H_
