// Between the plain structs of the runtime and the messages of proto/worker.proto.
#ifndef DELTAFILL_WORKER_RUNTIME_WIRE_H_
#define DELTAFILL_WORKER_RUNTIME_WIRE_H_

#include "absl/status/statusor.h"
#include "worker/runtime/commands.h"
#include "worker/runtime/events.h"
#include "worker/runtime/worker_profile.h"

namespace deltafill::v1 {
class WorkerCommand;
class WorkerEvent;
}  // namespace deltafill::v1

namespace deltafill::worker {

void ToWire(const WorkerProfile& profile, v1::WorkerEvent* message);
// A DecodeToken is added to the tokens that the message has.
void ToWire(const WorkerEvent& event, v1::WorkerEvent* message);

// INVALID_ARGUMENT naming the field: token bytes that are not whole ids, part ids without 32 bytes,
// a command without attempt or source, top_p or temperature out of range, a kind that is not known.
absl::StatusOr<WorkerCommand> FromWire(const v1::WorkerCommand& message);

// The attempt that a command belongs to; {0, 0} if none.
AttemptKey AttemptOf(const v1::WorkerCommand& message);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_WIRE_H_
