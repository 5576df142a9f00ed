// The scheduling side of the coordinator, put together: the WorkerService that workers attach to,
// and the PromptEngine that the front API gives its prompts to. One thread owns the scheduler;
// another renews and releases leases, so that a slow store never holds up scheduling.
#ifndef DELTAFILL_COORDINATOR_WORKERS_SCHEDULING_SERVICE_H_
#define DELTAFILL_COORDINATOR_WORKERS_SCHEDULING_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/prompt_engine.h"
#include "coordinator/scheduler/state.h"
#include "statestore/store.h"

namespace grpc {
class Service;
}

namespace deltafill::coordinator {

struct SchedulingOptions {
  SchedulerOptions scheduler;
  uint32_t heartbeat_ms = 1000;  // asked of workers; well below scheduler.heartbeat_timeout_s
  uint32_t tick_ms = 50;         // how often time-outs are looked at
  // One line for each worker that comes or goes and each failed lease call. Called from any thread,
  // must not block. Default: standard error.
  std::function<void(const std::string& line)> log;
};

// What hello messages and logits need; set it on the server that carries worker_service().
inline constexpr int kWorkerMessageBytesMax = 64 << 20;

// Thread-safe. Order of ending: Stop(), then shut down the server that carries worker_service(),
// then destroy this.
class SchedulingService {
 public:
  virtual ~SchedulingService() = default;

  // Valid as long as this. Do not submit, list or drain from an observer's callback.
  virtual PromptEngine* engine() = 0;

  // deltafill.v1.WorkerService, to be registered with the server on the worker port or an
  // in-process one (with kWorkerMessageBytesMax).
  virtual grpc::Service* worker_service() = 0;

  // Lets a worker finish what was promised to it and gives it nothing new. NOT_FOUND if no worker
  // has the name.
  virtual absl::Status DrainWorker(const std::string& name) = 0;

  // Finishes every prompt with UNAVAILABLE and ends every worker's stream; new ones are refused.
  // Idempotent.
  virtual void Stop() = 0;
};

// INVALID_ARGUMENT naming the option. `store` must outlive the service; only its leases are used.
absl::StatusOr<std::unique_ptr<SchedulingService>> StartScheduling(const SchedulingOptions& options,
                                                                   StateStore* store);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_SCHEDULING_SERVICE_H_
