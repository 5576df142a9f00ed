#include "coordinator/workers/attach_stream.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <utility>

#include "proto/status_conversion.h"
#include "proto/worker.pb.h"

namespace deltafill::coordinator {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>;

class AttachReactor final : public Reactor,
                            public AttachStream,
                            public std::enable_shared_from_this<AttachReactor> {
 public:
  AttachReactor(grpc::CallbackServerContext* context, ReadHandler on_read)
      : context_(context), on_read_(std::move(on_read)) {}
  ~AttachReactor() override = default;

  void StartOwned(std::shared_ptr<AttachReactor> self);
  const v1::WorkerEvent& event() const override { return event_; }
  void ReadNext() override;
  void Write(const v1::WorkerCommand& command) override;
  void Close(const absl::Status& status, bool cancel) override;
  bool closing() const override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  grpc::CallbackServerContext* const context_;
  const ReadHandler on_read_;
  std::shared_ptr<AttachReactor> self_;  // until OnDone
  v1::WorkerEvent event_;

  mutable std::mutex mutex_;
  // Under mutex_; the front one stays in place while it is being written.
  std::deque<v1::WorkerCommand> outgoing_;
  bool writing_ = false;
  bool broken_ = false;  // a write failed
  bool closing_ = false;
  absl::Status final_status_;
};

void AttachReactor::StartOwned(std::shared_ptr<AttachReactor> self) {
  self_ = std::move(self);
  StartRead(&event_);
}

void AttachReactor::ReadNext() {
  event_.Clear();
  StartRead(&event_);
}

void AttachReactor::Write(const v1::WorkerCommand& command) {
  const v1::WorkerCommand* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || broken_) return;
    outgoing_.push_back(command);
    if (!writing_) {
      writing_ = true;
      next = &outgoing_.front();
    }
  }
  if (next != nullptr) StartWrite(next);
}

void AttachReactor::Close(const absl::Status& status, bool cancel) {
  bool finish = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    final_status_ = status;
    finish = !writing_;
  }
  if (finish) {
    Finish(ToGrpcStatus(status));
  } else if (cancel) {
    context_->TryCancel();
  }
}

bool AttachReactor::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void AttachReactor::OnReadDone(bool ok) { on_read_(shared_from_this(), ok); }

void AttachReactor::OnWriteDone(bool ok) {
  const v1::WorkerCommand* next = nullptr;
  bool finish = false;
  {
    const std::lock_guard lock(mutex_);
    outgoing_.pop_front();
    broken_ |= !ok;
    writing_ = false;
    finish = closing_;
    if (closing_ || broken_) {
      outgoing_.clear();
    } else if (!outgoing_.empty()) {
      writing_ = true;
      next = &outgoing_.front();
    }
  }
  // After a failed write the read at hand fails too, and that ends the stream.
  if (finish) {
    Finish(ToGrpcStatus(final_status_));
  } else if (next != nullptr) {
    StartWrite(next);
  }
}

void AttachReactor::OnDone() { const std::shared_ptr<AttachReactor> last = std::move(self_); }

}  // namespace

Reactor* AttachStream::Start(grpc::CallbackServerContext* context, ReadHandler on_read) {
  const auto stream = std::make_shared<AttachReactor>(context, std::move(on_read));
  stream->StartOwned(stream);
  return stream.get();
}

}  // namespace deltafill::coordinator
