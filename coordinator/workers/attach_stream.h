// One attached worker's stream. Reads are started by the engine thread, one at a time, each after
// the event before has been handled: a worker cannot fill the engine's queue.
#ifndef DELTAFILL_COORDINATOR_WORKERS_ATTACH_STREAM_H_
#define DELTAFILL_COORDINATOR_WORKERS_ATTACH_STREAM_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "coordinator/scheduler/orders.h"

namespace grpc {
class CallbackServerContext;
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace deltafill::v1 {
class WorkerCommand;
class WorkerEvent;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// Keeps itself alive until gRPC is done with it.
class AttachStream {
 public:
  // Called on a gRPC thread after each read; ok is false when no more will come.
  using ReadHandler = std::function<void(std::shared_ptr<AttachStream> stream, bool ok)>;

  static grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Start(
      grpc::CallbackServerContext* context, ReadHandler on_read);

  // What was read last. Until ReadNext only.
  virtual const v1::WorkerEvent& event() const = 0;
  // Engine thread only, and not after Close.
  virtual void ReadNext() = 0;

  // In the order of the calls; dropped once the stream closes. Thread-safe.
  virtual void Write(const v1::WorkerCommand& command) = 0;

  // Ends the stream with this status, after the write at hand; with `cancel` without waiting for it
  // (a peer that does not read any more). Idempotent. Thread-safe, but not at once with ReadNext.
  virtual void Close(const absl::Status& status, bool cancel) = 0;
  virtual bool closing() const = 0;

  // 0 until the hello was accepted. Engine thread only.
  WorkerNumber worker() const { return worker_; }
  void set_worker(WorkerNumber worker) { worker_ = worker; }

 protected:
  virtual ~AttachStream() = default;

 private:
  WorkerNumber worker_ = 0;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_ATTACH_STREAM_H_
