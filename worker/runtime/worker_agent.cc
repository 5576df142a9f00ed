#include "worker/runtime/worker_agent.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/worker.grpc.pb.h"
#include "worker/runtime/closable_queue.h"
#include "worker/runtime/wire.h"

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
using Stream = grpc::ClientReaderWriter<v1::WorkerEvent, v1::WorkerCommand>;
using Outbox = ClosableQueue<WorkerEvent>;
constexpr std::chrono::milliseconds kIdlePoll{5};
// For the coordinator to end the stream of a worker that has failed; it may be gone too.
constexpr std::chrono::milliseconds kLeaveTimeout{2000};
constexpr int kTokensPerMessage = 4096;

// Why a session ended or never began.
std::string Describe(const grpc::Status& status) {
  if (status.ok()) return "it ended the stream";
  if (status.error_code() != grpc::StatusCode::UNIMPLEMENTED) return status.error_message();
  return "what answers there takes no workers; a coordinator does at its --worker-listen";
}

}  // namespace

struct WorkerAgent::Core {
  Core(std::shared_ptr<grpc::Channel> coordinator, WorkerAgentOptions agent_options)
      : channel(std::move(coordinator)),
        stub(v1::WorkerService::NewStub(channel)),
        options(std::move(agent_options)) {}

  void Main();
  // One attachment from hello to the stream's end. True if it was welcomed.
  bool RunSession(grpc::Status* status);
  void ReadCommands(Stream& stream, Outbox& session_outbox);
  void WriteEvents(Stream& stream, grpc::ClientContext& context, Outbox& outbox,
                   std::chrono::milliseconds heartbeat);
  bool WriteEvent(Stream& stream, const WorkerEvent& event);
  bool WriteWithTokens(Stream& stream, Outbox& session_outbox, std::optional<WorkerEvent>* event);
  bool WriteDrained(Stream& stream, Outbox& outbox);
  static bool Leave(Stream& stream, Outbox& outbox);
  WorkerHeartbeat Heartbeat() {
    WorkerHeartbeat heartbeat = handler->Heartbeat();
    heartbeat.draining = draining.load();
    return heartbeat;
  }
  void Log(const std::string& line) const {
    if (options.log) options.log(line);
  }

  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::WorkerService::Stub> stub;
  const WorkerAgentOptions options;
  WorkerProfile profile;
  CommandHandler* handler = nullptr;

  std::atomic<bool> draining{false};       // this worker wants to leave
  std::atomic<bool> drain_ordered{false};  // the coordinator has sent DrainWorker
  std::atomic<bool> drained{false};        // WorkerDrained is written

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  bool stopping = false;
  bool finished = false;
  absl::Status failure;  // this worker's own: it leaves
  absl::Status final_status;
  grpc::ClientContext* context = nullptr;  // of the present stream
  std::shared_ptr<Outbox> outbox;          // while attached

  std::thread thread;
};

void WorkerAgent::Core::Main() {
  std::chrono::milliseconds pause = options.reconnect_first;
  for (;;) {
    grpc::Status status;
    const bool welcomed = RunSession(&status);
    if (welcomed) pause = options.reconnect_first;
    std::unique_lock lock(mutex);
    if (!failure.ok()) final_status = failure;
    if (stopping || drained.load() || !failure.ok()) break;
    if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
      final_status = absl::FailedPreconditionError(status.error_message());
      break;
    }
    lock.unlock();
    Log(absl::StrCat("coordinator ",
                     welcomed ? "lost; trying to attach again: " : "not reached; trying again: ",
                     Describe(status)));
    lock.lock();
    changed.wait_for(lock, pause, [this] { return stopping || !failure.ok(); });
    if (!failure.ok()) final_status = failure;
    if (stopping || draining.load() || !failure.ok()) break;  // nobody is owed anything
    pause = std::min(pause * 2, options.reconnect_max);
    // The channel's own pauses between tries grow to minutes.
    grpc::experimental::ChannelResetConnectionBackoff(channel.get());
  }
  std::lock_guard lock(mutex);
  finished = true;
  changed.notify_all();
}

bool WorkerAgent::Core::RunSession(grpc::Status* status) {
  grpc::ClientContext session_context;
  {
    std::lock_guard lock(mutex);
    if (stopping) return false;
    context = &session_context;
  }
  std::unique_ptr<Stream> stream = stub->Attach(&session_context);
  v1::WorkerEvent hello;
  ToWire(profile, &hello);
  v1::WorkerCommand first;
  const bool welcomed = stream->Write(hello) && stream->Read(&first) && first.has_welcome();
  if (welcomed) {
    const uint32_t number = first.welcome().worker();
    Log(absl::StrCat("attached as worker ", number));
    handler->OnWelcome(number);
    auto session_outbox = std::make_shared<Outbox>();
    {
      std::lock_guard lock(mutex);
      outbox = session_outbox;
      if (!failure.ok()) outbox->Push(WorkerFailed{failure});
    }
    changed.notify_all();
    const std::chrono::milliseconds heartbeat(std::max(first.welcome().heartbeat_ms(), 10u));
    std::thread writer([&] { WriteEvents(*stream, session_context, *session_outbox, heartbeat); });
    ReadCommands(*stream, *session_outbox);
    {
      std::lock_guard lock(mutex);
      outbox.reset();
    }
    session_outbox->CloseAndClear();
    writer.join();
  }
  // Any answer but a welcome is none of ours to wait for.
  if (!welcomed && first.command_case() != v1::WorkerCommand::COMMAND_NOT_SET) {
    session_context.TryCancel();
  }
  *status = stream->Finish();
  {
    std::lock_guard lock(mutex);
    context = nullptr;
  }
  changed.notify_all();
  if (welcomed) handler->OnDetached();
  return welcomed;
}

void WorkerAgent::Core::ReadCommands(Stream& stream, Outbox& session_outbox) {
  v1::WorkerCommand message;
  while (stream.Read(&message)) {
    absl::StatusOr<WorkerCommand> command = FromWire(message);
    if (!command.ok()) {
      handler->OnBadCommand(AttemptOf(message), command.status());
    } else if (std::holds_alternative<DrainCommand>(*command)) {
      drain_ordered.store(true);
      session_outbox.Push(Heartbeat());  // wakes the writer
    } else if (!std::holds_alternative<WelcomeCommand>(*command)) {
      handler->OnCommand(*std::move(command));
    }
  }
}

bool WorkerAgent::Core::WriteEvent(Stream& stream, const WorkerEvent& event) {
  v1::WorkerEvent message;
  ToWire(event, &message);
  return stream.Write(message);
}

// A message costs the coordinator a few wake-ups, whatever is in it: a token takes those behind it
// along. `event` is then what comes after what was written, if it was taken out already.
bool WorkerAgent::Core::WriteWithTokens(Stream& stream, Outbox& session_outbox,
                                        std::optional<WorkerEvent>* event) {
  const auto is_token = [event] {
    return event->has_value() && std::holds_alternative<DecodeToken>(**event);
  };
  v1::WorkerEvent message;
  bool adding = is_token();
  ToWire(**event, &message);
  event->reset();
  while (adding && message.decode_tokens().tokens_size() < kTokensPerMessage) {
    *event = session_outbox.TryPop();
    adding = is_token();
    if (adding) ToWire(**event, &message);
  }
  if (adding) event->reset();
  return stream.Write(message);
}

void WorkerAgent::Core::WriteEvents(Stream& stream, grpc::ClientContext& session_context,
                                    Outbox& session_outbox, std::chrono::milliseconds heartbeat) {
  auto next_heartbeat = Clock::now();
  std::optional<WorkerEvent> event;
  for (;;) {
    bool written = true;
    if (Clock::now() >= next_heartbeat) {
      written = WriteEvent(stream, Heartbeat());
      next_heartbeat = Clock::now() + heartbeat;
    }
    // Idle is asked before the outbox is emptied: what was emitted until then goes out first.
    if (written && !event.has_value() && drain_ordered.load() && handler->Idle()) {
      if (WriteDrained(stream, session_outbox)) return;
      written = false;
    }
    if (!written) break;
    auto deadline = next_heartbeat;
    if (drain_ordered.load()) deadline = std::min(deadline, Clock::now() + kIdlePoll);
    if (!event.has_value()) event = session_outbox.PopUntil(deadline);
    if (!event.has_value() && session_outbox.closed()) break;
    if (!event.has_value()) continue;
    const bool fails = std::holds_alternative<WorkerFailed>(*event);
    if (!WriteWithTokens(stream, session_outbox, &event)) break;
    if (fails && Leave(stream, session_outbox)) return;
    if (fails) break;
  }
  session_context.TryCancel();
}

// False if the coordinator has not ended the stream in time.
bool WorkerAgent::Core::Leave(Stream& stream, Outbox& session_outbox) {
  const auto deadline = Clock::now() + kLeaveTimeout;
  if (!stream.WritesDone()) return false;
  while (!session_outbox.closed() && Clock::now() < deadline) session_outbox.PopUntil(deadline);
  return session_outbox.closed();
}

bool WorkerAgent::Core::WriteDrained(Stream& stream, Outbox& session_outbox) {
  while (std::optional<WorkerEvent> event = session_outbox.TryPop()) {
    if (!WriteEvent(stream, *event)) return false;
  }
  if (!WriteEvent(stream, WorkerDrained{}) || !stream.WritesDone()) return false;
  drained.store(true);
  return true;
}

WorkerAgent::WorkerAgent(std::shared_ptr<grpc::Channel> coordinator, WorkerAgentOptions options)
    : core_(std::make_unique<Core>(std::move(coordinator), std::move(options))) {}

WorkerAgent::~WorkerAgent() { Stop(); }

void WorkerAgent::Start(WorkerProfile profile, CommandHandler* handler) {
  core_->profile = std::move(profile);
  core_->handler = handler;
  core_->thread = std::thread([core = core_.get()] { core->Main(); });
}

void WorkerAgent::Stop() {
  {
    std::lock_guard lock(core_->mutex);
    core_->stopping = true;
    if (core_->context != nullptr) core_->context->TryCancel();
  }
  core_->changed.notify_all();
  if (core_->thread.joinable()) core_->thread.join();
}

bool WorkerAgent::Drain(std::chrono::milliseconds timeout) {
  core_->draining.store(true);
  std::unique_lock lock(core_->mutex);
  if (core_->outbox != nullptr) {
    lock.unlock();
    Emit(core_->Heartbeat());
    lock.lock();
  }
  return core_->changed.wait_for(lock, timeout,
                                 [this] { return core_->finished || core_->context == nullptr; });
}

bool WorkerAgent::WaitFinished(std::chrono::milliseconds timeout) {
  std::unique_lock lock(core_->mutex);
  return core_->changed.wait_for(lock, timeout, [this] { return core_->finished; });
}

absl::Status WorkerAgent::status() const {
  std::lock_guard lock(core_->mutex);
  return core_->final_status;
}

bool WorkerAgent::attached() const {
  std::lock_guard lock(core_->mutex);
  return core_->outbox != nullptr;
}

void WorkerAgent::Emit(WorkerEvent event) {
  std::shared_ptr<Outbox> outbox;
  {
    std::lock_guard lock(core_->mutex);
    outbox = core_->outbox;
    if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
      if (!core_->failure.ok()) return;
      core_->failure = failed->status;
      core_->Log(absl::StrCat("leaves: ", failed->status.message()));
    }
  }
  core_->changed.notify_all();
  if (outbox != nullptr) outbox->Push(std::move(event));
}

std::shared_ptr<grpc::Channel> ConnectCoordinator(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace deltafill::worker
