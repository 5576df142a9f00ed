#include "worker/exchange/nccl/communicator.h"

#include <string>
#include <thread>
#include <utility>

namespace deltafill::worker {
namespace {

using kernels::Status;
using kernels::StatusCode;
using Clock = std::chrono::steady_clock;

// An aborted kernel ends by itself; a card that does not let it end is beyond help.
constexpr std::chrono::seconds kAbortSecondsMax{5};

Status FromNccl(ncclResult_t result, const char* name, ncclComm_t comm) {
  std::string message = std::string(name) + ": " + ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last != nullptr && *last != 0) message += std::string(": ") + last;
  return {StatusCode::kInternal, std::move(message)};
}

// Asks often at first, when the answer is worth microseconds.
class Pause {
 public:
  explicit Pause(const WaitLimit& limit) : limit_(limit), start_(Clock::now()) {}

  // OK if it is worth asking again.
  Status Next(const char* name) {
    const auto now = Clock::now();
    const auto waited = now - start_;
    if (limit_.stop && limit_.stop()) {
      return {StatusCode::kInternal, std::string(name) + ": told to stop"};
    }
    if (now >= limit_.deadline) {
      return {StatusCode::kInternal, std::string(name) + ": not done within " +
                                         std::to_string(limit_.timeout.count()) + " ms"};
    }
    if (waited < std::chrono::microseconds(200)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::chrono::microseconds(waited < std::chrono::milliseconds(20) ? 20 : 500));
    }
    return {};
  }

 private:
  const WaitLimit& limit_;
  const Clock::time_point start_;
};

ncclConfig_t Configuration(const NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = options.blocks_per_transfer;
  config.commName = "deltafill";
  return config;
}

}  // namespace

Status FromCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return {StatusCode::kInternal,
          std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error)};
}

Status Communicator::Create(const NcclOptions& options, const ncclUniqueId& id, int ranks, int rank,
                            const WaitLimit& limit, std::unique_ptr<Communicator>* out) {
  if (Status s = FromCuda(cudaSetDevice(options.device), "cudaSetDevice"); !s.ok()) return s;
  std::unique_ptr<Communicator> made(new Communicator(options.device));
  // First in line whenever a multiprocessor is free: a peer waits for these kernels.
  int least = 0, greatest = 0;
  Status s = FromCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
  if (s.ok()) {
    s = FromCuda(cudaStreamCreateWithPriority(&made->stream_, cudaStreamNonBlocking, greatest),
                 "cudaStreamCreateWithPriority");
  }
  if (s.ok()) {
    s = FromCuda(cudaEventCreateWithFlags(&made->event_, cudaEventDisableTiming),
                 "cudaEventCreateWithFlags");
  }
  if (!s.ok()) return s;
  ncclConfig_t config = Configuration(options);
  const ncclResult_t result = ncclCommInitRankConfig(&made->comm_, ranks, id, rank, &config);
  if (s = made->Settle("ncclCommInitRankConfig", result, limit); !s.ok()) return s;
  *out = std::move(made);
  return {};
}

Communicator::~Communicator() {
  Abort();
  if (cudaSetDevice(device_) != cudaSuccess) return;
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

// Calls of a communicator that does not block go on in the background.
Status Communicator::Settle(const char* name, ncclResult_t result, const WaitLimit& limit) {
  Pause pause(limit);
  while (result == ncclInProgress) {
    ncclResult_t state = ncclSuccess;
    result = ncclCommGetAsyncError(comm_, &state);
    if (result == ncclSuccess) result = state;
    if (result != ncclInProgress) break;
    if (Status s = pause.Next(name); !s.ok()) return Break(std::move(s));
  }
  return result == ncclSuccess ? Status() : Break(FromNccl(result, name, comm_));
}

Status Communicator::Issue(const char* name, const NcclCalls& calls, const WaitLimit& limit) {
  if (!broken_.ok()) return broken_;
  if (Status s = FromCuda(cudaSetDevice(device_), "cudaSetDevice"); !s.ok()) {
    return Break(std::move(s));
  }
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) result = calls(comm_, stream_);
  // The group is ended also after a refused call, and its own result says why.
  const ncclResult_t ended = ncclGroupEnd();
  if (result == ncclSuccess || result == ncclInProgress) result = ended;
  return Settle(name, result, limit);
}

Status Communicator::Wait(const WaitLimit& limit) {
  if (!broken_.ok()) return broken_;
  Status s = FromCuda(cudaSetDevice(device_), "cudaSetDevice");
  if (s.ok()) s = FromCuda(cudaEventRecord(event_, stream_), "cudaEventRecord");
  if (!s.ok()) return Break(std::move(s));
  Pause pause(limit);
  for (;;) {
    const cudaError_t done = cudaEventQuery(event_);
    if (done == cudaSuccess) return {};
    if (done != cudaErrorNotReady) return Break(FromCuda(done, "cudaEventQuery"));
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess) return Break(FromNccl(state, "NCCL transfer", comm_));
    if (s = pause.Next("NCCL transfer"); !s.ok()) return Break(std::move(s));
  }
}

Status Communicator::Break(Status why) {
  broken_ = std::move(why);
  Abort();
  return broken_;
}

void Communicator::Abort() {
  if (comm_ == nullptr) return;
  (void)cudaSetDevice(device_);
  (void)ncclCommAbort(std::exchange(comm_, nullptr));
  // Until its kernels have ended, they may touch the memory they were given.
  const auto deadline = Clock::now() + kAbortSecondsMax;
  while (cudaStreamQuery(stream_) == cudaErrorNotReady && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace deltafill::worker
