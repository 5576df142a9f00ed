// What every call of a public service goes through: who is asking, whether they are still there,
// and how a failure is told.
#ifndef DELTAFILL_COORDINATOR_FRONT_CALL_RUNNER_H_
#define DELTAFILL_COORDINATOR_FRONT_CALL_RUNNER_H_

#include <atomic>

#include "absl/functional/function_ref.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/tenant_resolver.h"

namespace grpc {
class ServerContext;
class Status;
}  // namespace grpc

namespace deltafill::coordinator {

// Thread-safe. All references must outlive it; once `stopping` is true, running calls are
// cancelled.
class CallRunner {
 public:
  CallRunner(FrontContext& context, const TenantResolver& resolver,
             const std::atomic<bool>& stopping)
      : context_(context), resolver_(resolver), stopping_(stopping) {}

  FrontContext& context() const { return context_; }

  // Runs the operation for the call's tenant; logs failures of our own, adds retry delays.
  grpc::Status Run(grpc::ServerContext* server_context,
                   absl::FunctionRef<absl::Status(const Call&)> operation) const;

 private:
  absl::Status WithLastLoss(const absl::Status& status) const;
  void AddRetryDelay(grpc::ServerContext* server_context) const;

  FrontContext& context_;
  const TenantResolver& resolver_;
  const std::atomic<bool>& stopping_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_CALL_RUNNER_H_
