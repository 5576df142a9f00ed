#include "coordinator/workers/worker_hub.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/workers/worker_messages.h"
#include "proto/worker.pb.h"

namespace deltafill::coordinator {

void WorkerHub::HandleRead(const std::shared_ptr<AttachStream>& stream, bool ok,
                           Scheduler& scheduler) {
  const WorkerNumber worker = stream->worker();
  if (!ok) {
    if (worker != 0 && Detach(worker, absl::OkStatus(), false)) {
      scheduler.LoseWorker(worker, "its stream ended");
    }
    return stream->Close(absl::OkStatus(), false);
  }
  if (stream->closing()) return;
  if (worker == 0) {
    Attach(stream, scheduler);
  } else if (stream->event().has_failed()) {
    const std::string& why = stream->event().failed().message();
    if (Detach(worker, absl::InternalError(why), false)) scheduler.LoseWorker(worker, why);
  } else if (absl::Status status = DeliverEvent(worker, stream->event(), scheduler); !status.ok()) {
    log_(absl::StrCat("worker ", worker,
                      " sent a malformed event: ", std::string(status.message())));
    if (Detach(worker, status, false)) scheduler.LoseWorker(worker, "it sent a malformed event");
  }
  if (!stream->closing()) stream->ReadNext();
}

void WorkerHub::Attach(const std::shared_ptr<AttachStream>& stream, Scheduler& scheduler) {
  if (!stream->event().has_hello()) {
    return stream->Close(absl::InvalidArgumentError("the first event must be hello"), false);
  }
  const v1::WorkerHello& hello = stream->event().hello();
  absl::StatusOr<WorkerProfile> profile = ProfileFromHello(hello);
  if (profile.ok() || hello.protocol() != kWorkerProtocol) {
    // A hello of another version may not be readable at all: the version is the error to report.
    profile = registry_.Add(hello.protocol(), profile.ok() ? *profile : WorkerProfile());
  }
  if (!profile.ok()) {
    log_(absl::StrCat("worker ", hello.name(),
                      " was refused: ", std::string(profile.status().message())));
    return stream->Close(profile.status(), false);
  }
  stream->set_worker(profile->number);
  streams_[profile->number] = stream;
  v1::WorkerCommand command;
  command.mutable_welcome()->set_worker(profile->number);
  command.mutable_welcome()->set_heartbeat_ms(heartbeat_ms_);
  stream->Write(command);
  log_(absl::StrCat("worker ", profile->name, " attached: ", profile->model.name, ", ",
                    profile->device));
  scheduler.AttachWorker(*profile);
}

bool WorkerHub::Detach(WorkerNumber worker, const absl::Status& status, bool cancel) {
  const auto found = streams_.find(worker);
  if (found == streams_.end()) return false;
  const WorkerProfile* profile = registry_.Find(worker);
  log_(absl::StrCat("worker ", profile->name, " is gone: ",
                    status.ok() ? std::string("its stream ended") : std::string(status.message()),
                    "; ", streams_.size() - 1, " left"));
  found->second->Close(status, cancel);
  streams_.erase(found);
  registry_.Remove(worker);
  return true;
}

absl::Status WorkerHub::Drain(const std::string& name, Scheduler& scheduler) {
  const std::optional<WorkerNumber> worker = registry_.Find(name);
  if (!worker) return absl::NotFoundError(absl::StrCat("no worker called ", name, " is attached"));
  scheduler.DrainWorker(*worker);
  return absl::OkStatus();
}

void WorkerHub::CloseAll(const absl::Status& status) {
  for (const auto& [worker, stream] : streams_) {
    stream->Close(status, false);
    registry_.Remove(worker);
  }
  streams_.clear();
}

void WorkerHub::Send(WorkerNumber worker, const WorkerOrder& order) {
  const auto found = streams_.find(worker);
  if (found == streams_.end()) return;
  v1::WorkerCommand command;
  WriteCommand(order, &command);
  found->second->Write(command);
}

void WorkerHub::CloseWorker(WorkerNumber worker, const absl::Status& reason) {
  Detach(worker, reason, true);
}

}  // namespace deltafill::coordinator
