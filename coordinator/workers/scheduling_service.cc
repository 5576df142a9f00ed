#include "coordinator/workers/scheduling_service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/workers/attach_stream.h"
#include "coordinator/workers/engine_thread.h"
#include "coordinator/workers/lease_thread.h"
#include "coordinator/workers/worker_hub.h"
#include "proto/worker.grpc.pb.h"

namespace deltafill::coordinator {
namespace {

absl::Status Check(const SchedulingOptions& options) {
  const SchedulerOptions& scheduler = options.scheduler;
  if (scheduler.plan.range_tokens % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("range_tokens: ", scheduler.plan.range_tokens, " is not a multiple of 64"));
  }
  if (scheduler.prompts_running_max == 0 || scheduler.ranges_queued_max == 0) {
    return absl::InvalidArgumentError(
        "prompts_running_max and ranges_queued_max: must be at least 1");
  }
  if (options.heartbeat_ms == 0 || options.heartbeat_ms * 2e-3 > scheduler.heartbeat_timeout_s) {
    return absl::InvalidArgumentError(absl::StrCat("heartbeat_ms: ", options.heartbeat_ms,
                                                   " must be in [1, half of heartbeat_timeout_s]"));
  }
  if (options.tick_ms == 0) return absl::InvalidArgumentError("tick_ms: must be at least 1");
  return absl::OkStatus();
}

void WriteLine(const std::string& line) { std::cerr << line + "\n"; }

absl::Status Stopping() { return absl::UnavailableError("the coordinator is stopping"); }

class WorkerEndpoint final : public v1::WorkerService::CallbackService {
 public:
  WorkerEndpoint(EngineThread* engine, WorkerHub* hub) : engine_(engine), hub_(hub) {}

  grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Attach(
      grpc::CallbackServerContext* context) override {
    return AttachStream::Start(context, [this](std::shared_ptr<AttachStream> stream, bool ok) {
      const bool posted = engine_->Post([hub = hub_, stream, ok](Scheduler& scheduler) {
        hub->HandleRead(stream, ok, scheduler);
      });
      if (!posted) stream->Close(Stopping(), false);
    });
  }

 private:
  EngineThread* const engine_;
  WorkerHub* const hub_;
};

class SchedulingServiceImpl final : public SchedulingService {
 public:
  SchedulingServiceImpl(const SchedulingOptions& options, StateStore* store,
                        const std::function<void(const std::string&)>& log)
      : leases_(store, log),
        hub_(options.heartbeat_ms, &leases_, log),
        engine_(options.scheduler, std::chrono::milliseconds(options.tick_ms), &hub_),
        endpoint_(&engine_, &hub_) {}

  ~SchedulingServiceImpl() override { Stop(); }

  PromptEngine* engine() override { return &engine_; }
  grpc::Service* worker_service() override { return &endpoint_; }

  absl::Status DrainWorker(const std::string& name) override {
    absl::Status status = Stopping();
    engine_.RunAndWait([&](Scheduler& scheduler) { status = hub_.Drain(name, scheduler); });
    return status;
  }

  void Stop() override {
    engine_.Stop(Stopping(), [this](Scheduler&) { hub_.CloseAll(Stopping()); });
  }

 private:
  LeaseThread leases_;
  WorkerHub hub_;
  EngineThread engine_;
  WorkerEndpoint endpoint_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulingService>> StartScheduling(const SchedulingOptions& options,
                                                                   StateStore* store) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  return std::make_unique<SchedulingServiceImpl>(
      options, store,
      options.log ? options.log : std::function<void(const std::string&)>(WriteLine));
}

}  // namespace deltafill::coordinator
