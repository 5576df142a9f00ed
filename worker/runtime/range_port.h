// One pass of a range through the model, as its layers see it: where boundary states come from and
// where they go.
#ifndef DELTAFILL_WORKER_RUNTIME_RANGE_PORT_H_
#define DELTAFILL_WORKER_RUNTIME_RANGE_PORT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/exchange/boundary_exchange.h"
#include "worker/model/boundary_port.h"
#include "worker/model/buffer_pool.h"
#include "worker/model/latent_cache.h"
#include "worker/model/state_layout.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/hand_over.h"
#include "worker/runtime/state_pool.h"
#include "worker/runtime/stored_state.h"

namespace deltafill::worker {

// What ports work with on a lane. All outlive them.
struct PortLane {
  const StateLayout* layout = nullptr;
  kernels::Operators* operators = nullptr;  // of the lane that runs the passes
  BoundaryExchange* exchange = nullptr;     // needed for kPeer and for next
  // Of a backend with memory of its own; else nullptr.
  BufferPool* host_buffers = nullptr;    // page-locked
  BufferPool* device_buffers = nullptr;  // needed for next
  HandOver* hand_over = nullptr;         // needed for next
};

struct RangePass {
  enum class Source : uint8_t { kZero, kBuffer, kStored, kPeer };

  AttemptKey attempt;
  uint32_t range = 0;
  AttemptFlagRef flag;
  Source source = Source::kZero;
  StateBufferRef incoming;               // kBuffer: the state before the pass; else room for it
  StoredState* stored = nullptr;         // kStored: the state before the pass, as it is read
  StateBufferRef outgoing;               // nullptr: nobody needs the state after it
  const ExchangeTarget* next = nullptr;  // whom outgoing is published to; nullptr: nobody
  std::vector<StateBufferRef> captures;

  // Attention layers: the sequence's latents with room for the pass, and which of them are where.
  LatentCache* latents = nullptr;
  uint64_t first_token = 0;
  uint64_t token_count = 0;
  uint64_t held = 0;        // rows [0, held) are there; kPeer: [held, first_token) are awaited
  uint64_t next_holds = 0;  // with next: rows [next_holds, end of the pass) are published to it
};

// Used by the thread that runs the pass. On a device, layers are issued at most two ahead of those
// that are done, so that a pass ends soon after its attempt, and errors of what was handed on show
// at a later call, at the latest in Finish.
class RangePort : public BoundaryPort {
 public:
  // on_task_done is told the number of layers done.
  RangePort(const PortLane& lane, RangePass pass,
            std::function<void(uint32_t layers_done)> on_task_done = nullptr);

  absl::StatusOr<const void*> Await(uint32_t layer, PartKind kind) override;
  void* Outgoing(uint32_t layer, PartKind kind) override;
  absl::Status HandOn(uint32_t layer, PartKind kind) override;
  void* Capture(int capture, uint32_t layer, PartKind kind) override;
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override;
  absl::Status ShareLatents(uint32_t layer) override;
  absl::Status TaskDone(uint32_t layer) override;

  // Call it after every pass, failed ones too: waits for the lane and for what was handed on, so
  // that nothing uses the pass's memory any more. The first error of either.
  absl::Status Finish();

  double wait_s() const { return wait_s_; }      // for peers
  bool peer_lost() const { return peer_lost_; }  // there was no way to the next worker

 private:
  bool on_device() const { return lane_.host_buffers != nullptr; }
  absl::StatusOr<const StateEntry*> Entry(uint32_t layer, PartKind kind) const;
  absl::StatusOr<ReceivedState> AwaitPeer(uint32_t layer, PartKind kind);
  // The received bytes where the lane can read them: in device memory, or on the host in memory
  // that copies run fast from. They stay until Finish.
  absl::StatusOr<const std::byte*> Keep(ReceivedState received);
  absl::Status PublishToNext(uint32_t layer, PartKind kind, const std::byte* bytes, size_t count,
                             std::shared_ptr<const void> owner);
  absl::Status PublishLatents(uint32_t layer);
  absl::Status AwaitEarlierLatents(uint32_t layer);
  absl::Status Seen(absl::Status status);

  const PortLane lane_;
  const RangePass pass_;
  const std::function<void(uint32_t)> on_task_done_;
  std::vector<ReceivedState> kept_;
  std::vector<PooledBuffer> staged_;
  std::array<std::unique_ptr<kernels::LanePoint>, 2> tasks_;  // ends of the last layers issued
  double wait_s_ = 0;
  bool peer_lost_ = false;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_RANGE_PORT_H_
