// A StateStore behind gRPC; proto/statestore.proto is the specification.
#ifndef DELTAFILL_STATESTORE_SERVICE_H_
#define DELTAFILL_STATESTORE_SERVICE_H_

#include <memory>

#include "statestore/store.h"

namespace grpc {
class Service;  // callers that keep one include grpcpp/impl/service_type.h
}

namespace deltafill {

// A service for grpc::ServerBuilder::RegisterService. It blocks on the store in the server's own
// threads (gRPC's synchronous API), so bound them with a ResourceQuota. The store is not owned and
// must outlive the server. Payloads in flight are bounded: calls beyond that wait, then get
// UNAVAILABLE.
std::unique_ptr<grpc::Service> NewStateStoreService(StateStore* store);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_SERVICE_H_
