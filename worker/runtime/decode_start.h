// Gets decodings ready on a thread of its own, beside those that run: room for their states and
// latents, and the state that they start from, out of the store.
#ifndef DELTAFILL_WORKER_RUNTIME_DECODE_START_H_
#define DELTAFILL_WORKER_RUNTIME_DECODE_START_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/buffer_pool.h"
#include "worker/runtime/closable_queue.h"
#include "worker/runtime/decode_sequence.h"
#include "worker/runtime/prefill_lane.h"
#include "worker/runtime/state_pool.h"

namespace deltafill::worker {

// Thread-safe.
class DecodeStart {
 public:
  // Called on its thread, in the order of Push but for those that wait for room. A sequence that
  // could not be got ready, or was aborted, comes with Phase::kDone and has been reported.
  using Ready = std::function<void(std::unique_ptr<DecodeSequence>)>;

  // At most `sequences_max` are ready or run at a time; more wait. Parts, states and host_buffers
  // outlive it.
  static absl::StatusOr<std::unique_ptr<DecodeStart>> Create(const LaneParts& parts,
                                                             size_t sequences_max,
                                                             StatePool* states,
                                                             BufferPool* host_buffers, Ready ready);
  // Drops what waits; ends after the sequence at hand, whose attempt has been aborted.
  ~DecodeStart();

  // False if it has been stopped.
  bool Push(std::unique_ptr<DecodeSequence> sequence);

  // So many that were ready have ended.
  void Ended(size_t count);

 private:
  DecodeStart(const LaneParts& parts, size_t sequences_max, StatePool* states,
              BufferPool* host_buffers, Ready ready);
  using Sequences = std::list<std::unique_ptr<DecodeSequence>>;
  void Main();
  bool WaitForTurn(std::chrono::milliseconds limit);
  bool StartOne(Sequences& waiting);
  absl::StatusOr<bool> TakeRoom(DecodeSequence& sequence);
  absl::Status Start(DecodeSequence& sequence);
  absl::Status Load(DecodeSequence& sequence);
  absl::Status LoadState(const DecodeCommand& command, std::byte* state);

  const LaneParts parts_;
  const StateLayout& layout_;
  const size_t sequences_max_;
  StatePool* const states_;
  BufferPool* const host_buffers_;  // nullptr: the backend uses the host's memory
  const Ready ready_;
  std::unique_ptr<kernels::Operators> copies_;  // used by the thread only

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  size_t sequences_ = 0;
  bool stopping_ = false;

  ClosableQueue<std::unique_ptr<DecodeSequence>> queue_;
  std::thread thread_;  // last
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_DECODE_START_H_
