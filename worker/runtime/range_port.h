// One pass of a range through the model, as its layers see it: where boundary states come from and
// where they go.
#ifndef DELTAFILL_WORKER_RUNTIME_RANGE_PORT_H_
#define DELTAFILL_WORKER_RUNTIME_RANGE_PORT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/exchange/boundary_exchange.h"
#include "worker/model/boundary_port.h"
#include "worker/model/latent_cache.h"
#include "worker/model/state_layout.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/state_pool.h"

namespace deltafill::worker {

struct RangePass {
  enum class Source : uint8_t { kZero, kBuffer, kPeer };

  AttemptKey attempt;
  uint32_t range = 0;
  AttemptFlagRef flag;
  Source source = Source::kZero;
  StateBufferRef incoming;               // kBuffer: the state before the pass; kPeer: room for it
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

// Host memory only. Used by the thread that runs the pass.
class RangePort : public BoundaryPort {
 public:
  // exchange is needed for kPeer and for next. on_task_done is told the number of layers done.
  RangePort(const StateLayout* layout, BoundaryExchange* exchange, RangePass pass,
            std::function<void(uint32_t layers_done)> on_task_done = nullptr);

  absl::StatusOr<const void*> Await(uint32_t layer, PartKind kind) override;
  void* Outgoing(uint32_t layer, PartKind kind) override;
  absl::Status HandOn(uint32_t layer, PartKind kind) override;
  void* Capture(int capture, uint32_t layer, PartKind kind) override;
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override;
  absl::Status ShareLatents(uint32_t layer) override;
  absl::Status TaskDone(uint32_t layer) override;

  double wait_s() const { return wait_s_; }      // for peers
  bool peer_lost() const { return peer_lost_; }  // there was no way to the next worker

 private:
  absl::StatusOr<ReceivedState> AwaitPeer(uint32_t layer, PartKind kind);
  absl::Status PublishToNext(uint32_t layer, PartKind kind, std::span<const std::byte> bytes);
  absl::Status AwaitEarlierLatents(uint32_t layer);

  const StateLayout* const layout_;
  BoundaryExchange* const exchange_;
  const RangePass pass_;
  const std::function<void(uint32_t)> on_task_done_;
  double wait_s_ = 0;
  bool peer_lost_ = false;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_RANGE_PORT_H_
