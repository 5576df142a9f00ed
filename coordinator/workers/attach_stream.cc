#include "coordinator/workers/attach_stream.h"

#include <utility>

#include "proto/status_conversion.h"

namespace deltafill::coordinator {

AttachStream* AttachStream::Start(grpc::CallbackServerContext* context, ReadHandler on_read) {
  const std::shared_ptr<AttachStream> stream(new AttachStream(context, std::move(on_read)));
  stream->self_ = stream;
  stream->StartRead(&stream->event_);
  return stream.get();
}

void AttachStream::ReadNext() {
  event_.Clear();
  StartRead(&event_);
}

void AttachStream::Write(v1::WorkerCommand command) {
  const v1::WorkerCommand* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || broken_) return;
    outgoing_.push_back(std::move(command));
    if (!writing_) {
      writing_ = true;
      next = &outgoing_.front();
    }
  }
  if (next != nullptr) StartWrite(next);
}

void AttachStream::Close(const absl::Status& status, bool cancel) {
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

bool AttachStream::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void AttachStream::OnReadDone(bool ok) { on_read_(shared_from_this(), ok); }

void AttachStream::OnWriteDone(bool ok) {
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

void AttachStream::OnDone() { const std::shared_ptr<AttachStream> last = std::move(self_); }

}  // namespace deltafill::coordinator
