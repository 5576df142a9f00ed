// Between the workers' streams and the scheduler: who is attached, what comes in, what goes out.
#ifndef DELTAFILL_COORDINATOR_WORKERS_WORKER_HUB_H_
#define DELTAFILL_COORDINATOR_WORKERS_WORKER_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/scheduler/scheduler.h"
#include "coordinator/workers/attach_stream.h"
#include "coordinator/workers/lease_thread.h"
#include "coordinator/workers/registry.h"

namespace deltafill::coordinator {

// Everything on the engine thread.
class WorkerHub final : public SchedulerOutput {
 public:
  WorkerHub(uint32_t heartbeat_ms, LeaseThread* leases, std::function<void(const std::string&)> log)
      : heartbeat_ms_(heartbeat_ms), leases_(leases), log_(std::move(log)) {}

  // A read of the stream has ended: the hello, a report, or the end of the stream.
  void HandleRead(const std::shared_ptr<AttachStream>& stream, bool ok, Scheduler& scheduler);

  absl::Status Drain(const std::string& name, Scheduler& scheduler);
  void CloseAll(const absl::Status& status);

  void Send(WorkerNumber worker, const WorkerOrder& order) override;
  void CloseWorker(WorkerNumber worker, const absl::Status& reason) override;
  void RenewLeases(const std::vector<uint64_t>& lease_ids) override { leases_->Renew(lease_ids); }
  void ReleaseLeases(const std::vector<uint64_t>& lease_ids) override {
    leases_->Release(lease_ids);
  }

 private:
  void Attach(const std::shared_ptr<AttachStream>& stream, Scheduler& scheduler);
  // Forgets the worker and closes its stream. False if it was forgotten before.
  bool Detach(WorkerNumber worker, const absl::Status& status, bool cancel);

  const uint32_t heartbeat_ms_;
  LeaseThread* const leases_;
  const std::function<void(const std::string&)> log_;
  WorkerRegistry registry_;
  std::map<WorkerNumber, std::shared_ptr<AttachStream>> streams_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_WORKER_HUB_H_
