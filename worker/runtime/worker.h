// A worker: a model, its lanes, its exchange and the stream to its coordinator, put together.
#ifndef DELTAFILL_WORKER_RUNTIME_WORKER_H_
#define DELTAFILL_WORKER_RUNTIME_WORKER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/exchange/device_link.h"
#include "worker/exchange/mailbox_registry.h"
#include "worker/runtime/served_model.h"
#include "worker/runtime/worker_profile.h"

namespace grpc {
class Channel;
}

namespace deltafill::worker {

struct WorkerSetup {
  std::string name;  // unique among the coordinator's workers
  ServedModel served;
  StateStore* store = nullptr;                 // must outlive the worker
  std::shared_ptr<grpc::Channel> coordinator;  // see WorkerAgent for its limits

  // Where peers reach it. In one process: a registry shared by the workers of this coordinator, and
  // no address. Across machines: listen "host:port" (port 0: any free one), and the host that peers
  // are told; "" is the listen address's own, which must not be a wildcard then.
  std::shared_ptr<MailboxRegistry> registry;
  std::string exchange_listen;
  std::string exchange_advertise_host;
  // Of the model's device, for states between processes; nullptr: they go through the host.
  std::shared_ptr<DeviceTransport> device_transport;

  std::string device;               // for people; "": made from the model's numerics and threads
  int threads = 1;                  // of each lane
  int64_t range_tokens_max = 4096;  // a multiple of 64
  size_t capture_bytes_max = size_t{256} << 20;
  // Of attention layers, for all prompts and decodings that the worker has at hand; whatever would
  // need more is refused with RESOURCE_EXHAUSTED.
  size_t latent_bytes_max = size_t{8} << 30;
  int decode_batch_max = 16;  // decodes and exports at once, [1, 512]; more wait
  std::optional<CostConstants>
      costs;  // measured if not given: give one worker's to the others of its device
  std::function<void(const std::string& line)> log;  // may be empty; from any thread
};

// Thread-safe.
class Worker {
 public:
  // Makes the lanes, measures costs (about 0.3 s) and begins to attach; keeps trying while the
  // coordinator is away, and again when it comes back. INVALID_ARGUMENT naming the field;
  // RESOURCE_EXHAUSTED if the lanes' memory does not fit; UNAVAILABLE if it cannot listen.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(WorkerSetup setup);

  // Stop().
  ~Worker();

  // Leaves in good order: takes what the coordinator has promised it, finishes that, hands
  // everything on. True when done, also if there is no coordinator; false when the time is up. Then
  // Stop.
  bool Drain(std::chrono::milliseconds timeout);

  // Ends at once: attempts are aborted within one task. Idempotent.
  void Stop();

  // True once the worker has ended by itself: the coordinator drained it or refused it for good, or
  // its device has failed. What it worked on is then planned again on others; nothing but another
  // process can use the device.
  bool WaitFinished(std::chrono::milliseconds timeout);
  // FAILED_PRECONDITION: why it was refused. INTERNAL: how its device failed. OK otherwise.
  absl::Status status() const;

  bool attached() const;
  const WorkerProfile& profile() const;

 private:
  class Composition;
  explicit Worker(std::unique_ptr<Composition> composition);
  std::unique_ptr<Composition> composition_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_WORKER_H_
