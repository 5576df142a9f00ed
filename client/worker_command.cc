#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/listen_address.h"
#include "client/role.h"
#include "client/termination.h"
#include "client/worker_setup.h"
#include "coordinator/front/log.h"
#include "worker/exchange/nccl/open_transport.h"
#include "worker/runtime/worker_agent.h"

namespace deltafill::client {
namespace {

constexpr std::chrono::seconds kDrainSecondsMax{60};

std::string DefaultName() {
  char host[256] = "worker";
  gethostname(host, sizeof(host) - 1);
  return std::string(host) + "-" + std::to_string(getpid());
}

// Ends the process when the worker ends by itself: drained by its coordinator, refused, or without
// a card that works; whoever supervises it starts another.
void EndWhenFinished(worker::Worker* worker) {
  std::thread([worker] {
    while (!worker->WaitFinished(std::chrono::hours(1))) {
    }
    const absl::Status status = worker->status();
    std::_Exit(status.ok() ? 0
                           : FailRole(absl::IsInternal(status) ? "worker" : "coordinator", status));
  }).detach();
}

}  // namespace

int RunWorker(const WorkerOptions& options) {
  HoldTerminationSignals();
  worker::SetNcclVariables();
  const absl::StatusOr<std::vector<Device>> devices = ParseDevices(options.compute);
  if (!devices.ok()) return FailRole("worker", devices.status());
  if (devices->size() != 1) {
    return FailRole("worker", absl::InvalidArgumentError(absl::StrCat(
                                  "--device: ", options.compute.device,
                                  " names several GPUs; a worker has one, start one for each")));
  }
  const absl::Status listenable = CheckCanListen(options.listen);
  if (!listenable.ok()) return FailRole("--listen", listenable);
  absl::StatusOr<worker::WorkerSetup> setup = NewWorkerSetup(options.compute, 1);
  if (!setup.ok()) return FailRole("worker", setup.status());
  const absl::Status loaded = LoadOnto(devices->front(), options.compute, 1, &*setup);
  if (!loaded.ok()) return FailRole("--model, --device", loaded);
  OpenDeviceTransport(devices->front(), &*setup);
  absl::StatusOr<std::unique_ptr<StateStore>> store = ConnectStore(options.store_address);
  if (!store.ok()) return FailRole("--store", store.status());
  setup->name = options.name.empty() ? DefaultName() : options.name;
  setup->store = store->get();
  setup->coordinator = worker::ConnectCoordinator(options.coordinator_address);
  setup->exchange_listen = options.listen;
  setup->exchange_advertise_host = options.advertise;
  absl::StatusOr<std::unique_ptr<worker::Worker>> running = worker::Worker::Start(*setup);
  if (!running.ok()) return FailRole("worker", running.status());
  LogMemoryUse(*setup);
  coordinator::LogNotice(absl::StrCat("worker ", (*running)->profile().name, ", peers reach it at ",
                                      (*running)->profile().exchange_address));
  EndWhenFinished(running->get());
  WarnIfAway(options.store_address, **store);
  WaitForTermination();
  coordinator::LogNotice("draining");
  const bool drained = (*running)->Drain(kDrainSecondsMax);
  // The watching thread above may be inside the worker: end without unwinding it.
  std::_Exit(drained ? 0 : 1);
}

}  // namespace deltafill::client
