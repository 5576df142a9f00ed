// Keeps a worker attached to its coordinator: one stream, events out, commands in.
#ifndef DELTAFILL_WORKER_RUNTIME_WORKER_AGENT_H_
#define DELTAFILL_WORKER_RUNTIME_WORKER_AGENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker/runtime/commands.h"
#include "worker/runtime/events.h"
#include "worker/runtime/worker_profile.h"

namespace grpc {
class Channel;
}

namespace deltafill::worker {

// Called from the agent's threads, one call at a time but for Heartbeat and Idle.
class CommandHandler {
 public:
  virtual ~CommandHandler() = default;
  virtual void OnWelcome(uint32_t worker) = 0;
  // Never blocks. RangeCommand, AbortCommand, DecodeCommand or ExportCommand.
  virtual void OnCommand(WorkerCommand command) = 0;
  // A command that could not be read; the attempt must be failed.
  virtual void OnBadCommand(const AttemptKey& attempt, const absl::Status& status) = 0;
  // The coordinator is gone: ends every attempt, and returns when nothing runs any more.
  virtual void OnDetached() = 0;
  // `draining` is the agent's.
  virtual WorkerHeartbeat Heartbeat() = 0;
  // Nothing runs or waits, and peers have acknowledged everything.
  virtual bool Idle() = 0;
};

struct WorkerAgentOptions {
  std::chrono::milliseconds reconnect_first{100};  // doubles up to reconnect_max
  std::chrono::milliseconds reconnect_max{5000};
  std::function<void(const std::string& line)> log;  // may be empty
};

// The channel must accept messages as long as the longest prompt of a RunDecode or RunExport (4
// bytes a token): ConnectCoordinator's does; in-process channels need
// GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH.
//
// While nobody is attached, events are dropped: the coordinator has lost this worker's attempts.
// But WorkerFailed ends the agent whenever it comes.
class WorkerAgent : public EventSink {
 public:
  WorkerAgent(std::shared_ptr<grpc::Channel> coordinator, WorkerAgentOptions options);
  ~WorkerAgent() override;  // Stop()

  // Once. `handler` must outlive the agent, or its Stop.
  void Start(WorkerProfile profile, CommandHandler* handler);

  // Tells the coordinator that the worker wants to leave and waits until it has: every range that
  // was promised is done. True if so, or if there is no coordinator; false when the time is up.
  bool Drain(std::chrono::milliseconds timeout);

  // Ends the stream at once. Idempotent.
  void Stop();

  // Waits until the agent has ended by itself: drained, refused for good, or after WorkerFailed.
  // False at the timeout.
  bool WaitFinished(std::chrono::milliseconds timeout);

  // OK while it runs and after draining; the coordinator's refusal, or WorkerFailed's, otherwise.
  absl::Status status() const;

  bool attached() const;

  void Emit(WorkerEvent event) override;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

// A channel to a coordinator's worker port ("host:port") with pings and message limits as needed.
std::shared_ptr<grpc::Channel> ConnectCoordinator(const std::string& address);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_WORKER_AGENT_H_
