// PrefillService over gRPC: each call runs its operation.
#ifndef DELTAFILL_COORDINATOR_FRONT_SERVICE_H_
#define DELTAFILL_COORDINATOR_FRONT_SERVICE_H_

#include <memory>

#include "coordinator/front/call_runner.h"

namespace grpc {
class Service;
}

namespace deltafill::coordinator {

// Synchronous: each call holds one of the server's threads until it ends. The runner must outlive
// the service.
std::unique_ptr<grpc::Service> NewPrefillService(const CallRunner& runner);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_SERVICE_H_
