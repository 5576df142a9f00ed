// One attached worker's stream. Reads are started by the engine thread, one at a time, each after
// the event before has been handled: a worker cannot fill the engine's queue.
#ifndef DELTAFILL_COORDINATOR_WORKERS_ATTACH_STREAM_H_
#define DELTAFILL_COORDINATOR_WORKERS_ATTACH_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "coordinator/scheduler/orders.h"
#include "proto/worker.pb.h"

namespace deltafill::coordinator {

// Keeps itself alive until gRPC is done with it.
class AttachStream final : public grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>,
                           public std::enable_shared_from_this<AttachStream> {
 public:
  // Called on a gRPC thread after each read; ok is false when no more will come.
  using ReadHandler = std::function<void(std::shared_ptr<AttachStream> stream, bool ok)>;

  static AttachStream* Start(grpc::CallbackServerContext* context, ReadHandler on_read);

  // What was read last. Until ReadNext only.
  const v1::WorkerEvent& event() const { return event_; }
  // Engine thread only, and not after Close.
  void ReadNext();

  // In the order of the calls; dropped once the stream closes. Thread-safe.
  void Write(v1::WorkerCommand command);

  // Ends the stream with this status, after the write at hand; with `cancel` without waiting for it
  // (a peer that does not read any more). Idempotent. Thread-safe, but not at once with ReadNext.
  void Close(const absl::Status& status, bool cancel);
  bool closing() const;

  // 0 until the hello was accepted. Engine thread only.
  WorkerNumber worker() const { return worker_; }
  void set_worker(WorkerNumber worker) { worker_ = worker; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  AttachStream(grpc::CallbackServerContext* context, ReadHandler on_read)
      : context_(context), on_read_(std::move(on_read)) {}

  grpc::CallbackServerContext* const context_;
  const ReadHandler on_read_;
  std::shared_ptr<AttachStream> self_;  // until OnDone
  v1::WorkerEvent event_;
  WorkerNumber worker_ = 0;

  mutable std::mutex mutex_;
  // Under mutex_; the front one stays in place while it is being written.
  std::deque<v1::WorkerCommand> outgoing_;
  bool writing_ = false;
  bool broken_ = false;  // a write failed
  bool closing_ = false;
  absl::Status final_status_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_ATTACH_STREAM_H_
