// PrefillService over gRPC: resolves the tenant, calls the operation, finishes the call.
#ifndef DELTAFILL_COORDINATOR_FRONT_SERVICE_H_
#define DELTAFILL_COORDINATOR_FRONT_SERVICE_H_

#include <atomic>
#include <memory>

#include "coordinator/front/operations.h"
#include "coordinator/front/tenant_resolver.h"

namespace grpc {
class Service;
}

namespace deltafill::coordinator {

// Synchronous: each call holds one of the server's threads until it ends. All references must
// outlive the service. Once `stopping` is true, running calls are cancelled.
std::unique_ptr<grpc::Service> NewPrefillService(FrontContext& context,
                                                 const TenantResolver& resolver,
                                                 const std::atomic<bool>& stopping);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_SERVICE_H_
