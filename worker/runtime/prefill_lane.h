// Runs the ranges a worker is given, one after the other, on a thread of its own.
#ifndef DELTAFILL_WORKER_RUNTIME_PREFILL_LANE_H_
#define DELTAFILL_WORKER_RUNTIME_PREFILL_LANE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/store.h"
#include "worker/exchange/boundary_exchange.h"
#include "worker/model/model.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/boundary_saver.h"
#include "worker/runtime/closable_queue.h"
#include "worker/runtime/commands.h"
#include "worker/runtime/latent_shelf.h"
#include "worker/runtime/range_port.h"
#include "worker/runtime/state_pool.h"

namespace deltafill::worker {

// What a lane works with; all must outlive it.
struct LaneParts {
  Model* model = nullptr;
  BoundaryExchange* exchange = nullptr;
  StateStore* store = nullptr;
  BoundarySaver* saver = nullptr;
  AttemptBook* attempts = nullptr;
  LatentShelf* latents = nullptr;
  EventSink* sink = nullptr;
};

struct PrefillLaneOptions {
  int threads = 1;
  int64_t range_tokens_max = 4096;  // a multiple of 64
  // Room for captured states that wait to be saved; at least two states whatever it says. Recovery
  // boundaries are skipped when it is full, requested ones wait (TakeStallSeconds).
  size_t capture_bytes_max = size_t{256} << 20;
};

// Events, in this order: RangeProgress (at most ten a second), LastLogits, RangeDone;
// BoundaryStored and LatentPieceStored as parts become stored. Or AttemptFailed, once an attempt;
// nothing for aborted attempts.
class PrefillLane {
 public:
  // RESOURCE_EXHAUSTED if the scratch memory does not fit; INVALID_ARGUMENT naming the option. On a
  // device this runs the longest range once, so that serving finds all workspaces there.
  static absl::StatusOr<std::unique_ptr<PrefillLane>> Create(const LaneParts& parts,
                                                             const PrefillLaneOptions& options);
  // Ends within one task of the range at hand; its attempt must have been aborted for that if it
  // may be waiting for a peer.
  ~PrefillLane();

  // Thread-safe, never blocks: reserves what the range will receive and queues it.
  void Run(RangeCommand command);

  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

  // Time spent waiting for room for requested boundaries since the last call.
  double TakeStallSeconds() { return stall_s_.exchange(0.0); }

 private:
  struct Queued {
    RangeCommand command;
    AttemptFlagRef flag;
  };
  // Captures of one pass: boundaries[i] goes to states[i].
  struct Captures {
    std::vector<BoundaryWanted> boundaries;
    std::vector<StateBufferRef> states;
    std::vector<int64_t> offsets;  // tokens from the pass's start
  };
  // A range whose boundaries have no room at once runs in several passes, cut at boundaries; that
  // does not show in the bits.
  struct Pass {
    uint64_t first_token = 0;
    size_t token_count = 0;
    std::vector<BoundaryWanted> boundaries;
    uint64_t end() const { return first_token + token_count; }
  };
  // What a range carries from pass to pass.
  struct Progress {
    RangePass::Source source = RangePass::Source::kZero;
    StateBufferRef incoming;
    std::unique_ptr<StoredState> stored;       // read as the first pass asks for it
    std::shared_ptr<SequenceLatents> latents;  // nullptr: no attention layers
    double wait_s = 0;
    double stalled_s = 0;
    std::chrono::steady_clock::time_point reported;
  };
  struct Failure {
    bool peer_lost = false;
    bool stored_state_lost = false;
  };

  PrefillLane(const LaneParts& parts, const PrefillLaneOptions& options);
  absl::Status Prepare();
  absl::Status PrepareDevice();
  void Main();
  void RunRange(const Queued& queued);
  absl::Status Validate(const RangeCommand& command) const;
  absl::Status ValidateLatents(const RangeCommand& command) const;
  std::vector<Pass> Plan(const RangeCommand& command) const;
  absl::StatusOr<Progress> Begin(const Queued& queued, Failure* failure);
  absl::Status LoadStart(const RangeCommand& command, Progress* progress);
  absl::Status OpenLatents(const Queued& queued, Progress* progress, Failure* failure);
  absl::Status RunPasses(const Queued& queued, Failure* failure);
  absl::Status RunPass(const Queued& queued, const Pass& pass, bool is_last, Progress* progress,
                       Failure* failure);
  absl::Status Acquire(const Queued& queued, const Pass& pass, bool is_last, Captures* captures);
  absl::Status SendLogits(const Queued& queued);
  void Save(const Queued& queued, Captures captures, const SequenceLatents* latents);
  void SavePieces(const Queued& queued, const Pass& pass, const SequenceLatents& latents);

  const LaneParts parts_;
  const PrefillLaneOptions options_;
  const StateLayout& layout_;
  std::unique_ptr<StatePool> captures_;
  std::unique_ptr<StatePool> scratch_;
  // With a device only.
  std::unique_ptr<BufferPool> device_buffers_;
  std::unique_ptr<BufferPool> host_buffers_;
  PooledBuffer start_staged_;  // for a stored start state, with a device
  std::unique_ptr<HandOver> hand_over_;
  // Used by the lane's thread only.
  std::shared_ptr<Lane> lane_;
  PortLane port_lane_;
  StateBufferRef incoming_;
  StateBufferRef outgoing_;

  std::atomic<double> stall_s_{0.0};
  std::atomic<int64_t> pending_{0};
  ClosableQueue<Queued> queue_;
  std::thread thread_;  // last
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_PREFILL_LANE_H_
