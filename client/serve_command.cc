// serve: store, coordinator and workers in one process. The same roles as the separate ones, joined
// by in-process channels; only the client port is a real one.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/listen_address.h"
#include "client/role.h"
#include "client/termination.h"
#include "client/worker_setup.h"
#include "coordinator/front/front_server.h"
#include "coordinator/front/log.h"
#include "coordinator/workers/scheduling_service.h"

namespace deltafill::client {
namespace {

constexpr std::chrono::seconds kStopGrace{5};
constexpr std::chrono::seconds kAttachSecondsMax{30};
constexpr std::chrono::milliseconds kWatchPause{100};

// A server without a port, and the channel into it.
std::unique_ptr<grpc::Server> StartInProcess(grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(coordinator::kWorkerMessageBytesMax);
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

std::shared_ptr<grpc::Channel> ConnectInProcess(grpc::Server* server) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(coordinator::kWorkerMessageBytesMax);
  return server->InProcessChannel(arguments);
}

using Workers = std::vector<std::unique_ptr<worker::Worker>>;

// --device and --workers.
struct Placement {
  std::vector<Device> devices;
  int workers = 0;  // worker i is on device i mod devices

  int WorkersOn(size_t device) const {
    const int count = static_cast<int>(devices.size());
    return workers / count + (static_cast<int>(device) < workers % count ? 1 : 0);
  }
};

absl::StatusOr<Placement> PlaceWorkers(const ServeOptions& options) {
  absl::StatusOr<std::vector<Device>> devices = ParseDevices(options.compute);
  if (!devices.ok()) return devices.status();
  Placement placement{*std::move(devices), options.workers};
  const int count = static_cast<int>(placement.devices.size());
  if (placement.workers == 0) placement.workers = count;
  if (placement.workers >= count) return placement;
  return absl::InvalidArgumentError(absl::StrCat("--workers ", options.workers, ": --device ",
                                                 options.compute.device, " names ", count,
                                                 " devices, and each has a worker at least"));
}

// What the workers of each device have in common, their model loaded.
absl::StatusOr<std::vector<worker::WorkerSetup>> LoadModels(const ServeOptions& options,
                                                            const Placement& placement) {
  std::vector<worker::WorkerSetup> setups;
  for (size_t i = 0; i < placement.devices.size(); ++i) {
    absl::StatusOr<worker::WorkerSetup> setup = NewWorkerSetup(options.compute, placement.workers);
    if (!setup.ok()) return setup.status();
    absl::Status loaded =
        LoadOnto(placement.devices[i], options.compute, placement.WorkersOn(i), &*setup);
    if (!loaded.ok()) return loaded;
    setups.push_back(*std::move(setup));
  }
  return setups;
}

absl::StatusOr<Workers> StartWorkers(const std::vector<worker::WorkerSetup>& setups, int count,
                                     StateStore* store, grpc::Server* server) {
  const auto registry = std::make_shared<worker::MailboxRegistry>();
  Workers workers;
  for (int number = 0; number < count; ++number) {
    worker::WorkerSetup setup = setups[static_cast<size_t>(number) % setups.size()];
    setup.name = absl::StrCat("worker-", number);
    setup.store = store;
    setup.coordinator = ConnectInProcess(server);
    setup.registry = registry;
    // Measured once a device: the planner counts with each worker's own.
    const size_t measured = static_cast<size_t>(number) % setups.size();
    if (measured < workers.size()) setup.costs = workers[measured]->profile().costs;
    absl::StatusOr<std::unique_ptr<worker::Worker>> started =
        worker::Worker::Start(std::move(setup));
    if (!started.ok()) return started.status();
    workers.push_back(*std::move(started));
  }
  return workers;
}

// Tells of workers whose card has failed. The others go on; with none left this process needs a new
// start, and its health says so.
class WorkerWatch {
 public:
  WorkerWatch(const Workers* workers, coordinator::FrontServer* front)
      : workers_(workers), front_(front), thread_([this] { Main(); }) {}
  ~WorkerWatch() {
    stopping_ = true;
    thread_.join();
  }

 private:
  void Main() {
    std::set<const worker::Worker*> failed;
    while (!stopping_ && failed.size() < workers_->size()) {
      std::this_thread::sleep_for(kWatchPause);
      for (const auto& worker : *workers_) {
        if (failed.contains(worker.get()) || !worker->WaitFinished(std::chrono::milliseconds(0)) ||
            worker->status().ok()) {
          continue;
        }
        failed.insert(worker.get());
        coordinator::LogError(absl::StrCat(
            worker->profile().name, " has ended: ", std::string(worker->status().message()), "; ",
            workers_->size() - failed.size(), " of ", workers_->size(), " workers go on"));
      }
    }
    if (!stopping_) front_->SetServing(false);
  }

  const Workers* const workers_;
  coordinator::FrontServer* const front_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last
};

absl::Status WaitAttached(const Workers& workers) {
  const auto deadline = std::chrono::steady_clock::now() + kAttachSecondsMax;
  for (const auto& worker : workers) {
    while (!worker->attached()) {
      if (!worker->status().ok()) return worker->status();
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::UnavailableError("a worker did not attach in time");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return absl::OkStatus();
}

// Refuses what cannot be listened on, or a public address without credentials, before anything is
// loaded.
absl::Status CheckAddress(const std::string& listen, const coordinator::TenantResolver* resolver) {
  absl::Status listenable = CheckCanListen(listen);
  if (absl::IsInvalidArgument(listenable) || resolver != nullptr) return listenable;
  const absl::Status secret =
      coordinator::CheckListenAddress(listen, *coordinator::NewTrustingResolver());
  return secret.ok() ? listenable : secret;
}

}  // namespace

int RunServe(const ServeOptions& options) {
  HoldTerminationSignals();
  auto resolver = LoadResolver(options.port.credentials_file);
  if (!resolver.ok()) return FailRole("--credentials", resolver.status());
  const absl::Status reachable = CheckAddress(options.port.listen, resolver->get());
  if (!reachable.ok()) return FailRole("--listen", reachable);
  const coordinator::TlsFiles tls{options.port.tls_certificate, options.port.tls_key};
  const absl::Status encrypted = coordinator::LoadServerCredentials(tls).status();
  if (!encrypted.ok()) return FailRole("--tls-certificate, --tls-key", encrypted);
  const absl::StatusOr<Placement> placement = PlaceWorkers(options);
  if (!placement.ok()) return FailRole("serve", placement.status());
  // What fails at once comes before a model that may take minutes to load.
  absl::StatusOr<std::unique_ptr<StateStore>> store = OpenStore(options.store);
  if (!store.ok()) return FailRole("--store", store.status());
  auto scheduling =
      coordinator::StartScheduling(ToSchedulingOptions(options.scheduling), store->get());
  if (!scheduling.ok()) return FailRole("scheduling", scheduling.status());
  const auto setups = LoadModels(options, *placement);
  if (!setups.ok()) return FailRole("--model, --device", setups.status());
  const std::unique_ptr<grpc::Server> internal = StartInProcess((*scheduling)->worker_service());
  absl::StatusOr<Workers> workers =
      StartWorkers(*setups, placement->workers, store->get(), internal.get());
  if (!workers.ok()) return FailRole("workers", workers.status());
  const absl::Status attached = WaitAttached(*workers);
  if (!attached.ok()) return FailRole("workers", attached);
  for (const worker::WorkerSetup& setup : *setups) LogMemoryUse(setup);
  auto front = coordinator::StartFrontServer({options.port.listen, *std::move(resolver), tls},
                                             **store, *(*scheduling)->engine());
  if (!front.ok()) return FailRole("--listen", front.status());
  const worker::WorkerProfile& profile = workers->front()->profile();
  coordinator::LogNotice(absl::StrCat("ready: model ", profile.model_name, ", ", workers->size(),
                                      " worker(s) of ", profile.device));
  std::optional<WorkerWatch> watch(std::in_place, &*workers, front->get());
  WaitForTermination();
  watch.reset();
  coordinator::LogNotice("stopping");
  (*front)->Stop(kStopGrace);
  for (const auto& worker : *workers) worker->Stop();  // else they would look for the coordinator
  (*scheduling)->Stop();
  internal->Shutdown(std::chrono::system_clock::now() + kStopGrace);
  return 0;
}

}  // namespace deltafill::client
