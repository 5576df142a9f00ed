// Between the messages of proto/worker.proto and the scheduler's plain structs.
#ifndef DELTAFILL_COORDINATOR_WORKERS_WORKER_MESSAGES_H_
#define DELTAFILL_COORDINATOR_WORKERS_WORKER_MESSAGES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/scheduler/orders.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::v1 {
class WorkerCommand;
class WorkerEvent;
class WorkerHello;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// INVALID_ARGUMENT naming the field if a value has no form at all (a fingerprint that is not 32
// bytes); the registry judges the rest.
absl::StatusOr<WorkerProfile> ProfileFromHello(const v1::WorkerHello& hello);

void WriteCommand(const WorkerOrder& order, v1::WorkerCommand* command);

// Hands a report to the scheduler. INVALID_ARGUMENT naming the field for one that is malformed, a
// second hello included: the worker must not be trusted any further.
absl::Status DeliverEvent(WorkerNumber worker, const v1::WorkerEvent& event, Scheduler& scheduler);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_WORKER_MESSAGES_H_
