// From the command line's compute options to a worker's setup.
#ifndef DELTAFILL_CLIENT_WORKER_SETUP_H_
#define DELTAFILL_CLIENT_WORKER_SETUP_H_

#include "absl/status/statusor.h"
#include "client/options.h"
#include "worker/runtime/worker.h"

namespace deltafill::client {

absl::StatusOr<worker::ServedModel> LoadServedModel(const ComputeOptions& options);

// Threads, limits and log for one of `workers` workers of this process; the rest is the caller's.
// INVALID_ARGUMENT naming the option.
absl::StatusOr<worker::WorkerSetup> NewWorkerSetup(const ComputeOptions& options, int workers);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_WORKER_SETUP_H_
