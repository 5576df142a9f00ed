// From the command line's compute options to a worker's setup.
#ifndef DELTAFILL_CLIENT_WORKER_SETUP_H_
#define DELTAFILL_CLIENT_WORKER_SETUP_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/device_option.h"
#include "client/options.h"
#include "worker/runtime/worker.h"

namespace deltafill::client {

// Threads, limits and log for one of `workers` workers of this process; the rest is the caller's.
// INVALID_ARGUMENT naming the option.
absl::StatusOr<worker::WorkerSetup> NewWorkerSetup(const ComputeOptions& options, int workers);

// --model on a device, for `workers` workers set up as `setup`; sets setup->served and
// setup->device. What is planned and how far loading has come goes to the setup's log.
absl::Status LoadOnto(const Device& device, const ComputeOptions& options, int workers,
                      worker::WorkerSetup* setup);

// To the setup's log, what its device's memory is used for by then; nothing of a CPU.
void LogMemoryUse(const worker::WorkerSetup& setup);

// NCCL on a CUDA device, for states to workers of other processes. Where it cannot be had the log
// says why, and states go through the host.
void OpenDeviceTransport(const Device& device, worker::WorkerSetup* setup);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_WORKER_SETUP_H_
