// An NCCL communicator with a stream of its own. Nothing here waits without a limit.
#ifndef DELTAFILL_WORKER_EXCHANGE_NCCL_COMMUNICATOR_H_
#define DELTAFILL_WORKER_EXCHANGE_NCCL_COMMUNICATOR_H_

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>

#include "kernels/status.h"
#include "worker/exchange/device_link.h"
#include "worker/exchange/nccl/open_transport.h"

namespace deltafill::worker {

kernels::Status FromCuda(cudaError_t error, const char* call);

// How long all steps of a call together may wait.
struct WaitLimit {
  using Clock = std::chrono::steady_clock;
  WaitLimit(std::chrono::milliseconds limit, const StopAsked& stop_asked)
      : timeout(limit), deadline(Clock::now() + limit), stop(stop_asked) {}

  const std::chrono::milliseconds timeout;  // for messages
  const Clock::time_point deadline;
  const StopAsked& stop;
};

// Used by one thread at a time. After an error it is aborted, and every call fails.
class Communicator {
 public:
  // All `ranks` ends call this with the same id at about the same time.
  static kernels::Status Create(const NcclOptions& options, const ncclUniqueId& id, int ranks,
                                int rank, const WaitLimit& limit,
                                std::unique_ptr<Communicator>* out);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Runs calls of NCCL on the stream, and returns when they are issued. `name` is for messages.
  using NcclCalls = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  kernels::Status Issue(const char* name, const NcclCalls& calls, const WaitLimit& limit);

  // Waits until all that was issued is done.
  kernels::Status Wait(const WaitLimit& limit);

  cudaStream_t stream() const { return stream_; }

 private:
  explicit Communicator(int device) : device_(device) {}
  kernels::Status Settle(const char* name, ncclResult_t result, const WaitLimit& limit);
  kernels::Status Break(kernels::Status why);
  void Abort();

  const int device_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  kernels::Status broken_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_NCCL_COMMUNICATOR_H_
