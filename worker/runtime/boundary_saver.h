// Puts captured prefix states and latents into the state store, on a thread of its own.
#ifndef DELTAFILL_WORKER_RUNTIME_BOUNDARY_SAVER_H_
#define DELTAFILL_WORKER_RUNTIME_BOUNDARY_SAVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "statestore/store.h"
#include "worker/model/buffer_pool.h"
#include "worker/model/state_layout.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/closable_queue.h"
#include "worker/runtime/latent_pieces.h"
#include "worker/runtime/state_pool.h"

namespace deltafill::worker {

// Receipts of all parts: recurrent, convolution tail, pieces of latents, and logits, as far as
// there were any. Errors: the store's; INTERNAL naming layer and head or token if a value is not
// finite (then its part was not stored, and those before it go with their leases);
// CANCELLED if the attempt was aborted before its turn, or the saver stopped.
using SaveDone = std::function<void(absl::StatusOr<std::vector<PartReceipt>>)>;

struct SaveRequest {
  AttemptFlagRef flag;
  std::string tenant;
  uint64_t boundary = 0;
  StateBufferRef state;             // given back to its pool before `done`; nullptr: latents only
  std::vector<LatentPiece> pieces;  // ascending; given back as well
  std::vector<float> logits;        // stored as well if not empty
  SaveDone done;                    // called once, from the saver's thread
};

// Thread-safe. The queue is bounded by the pools that the states come from: whoever has no buffer
// waits for one, or does without (see PrefillLane). Latents wait in the pages that the sequence has
// anyway.
//
// From a device, one state or piece at a time comes to page-locked memory, on a lane of the saver's
// own; its device memory is given back then, before anything is stored.
class BoundarySaver {
 public:
  // All must outlive it. `backend` is that of the states.
  BoundarySaver(StateStore* store, const StateLayout* layout, kernels::Backend* backend);
  // Stops; what is queued is dropped with CANCELLED.
  ~BoundarySaver();

  // RESOURCE_EXHAUSTED with the sizes if its page-locked memory does not fit: then nothing can be
  // saved.
  absl::Status status() const { return prepared_; }

  // States and pieces are complete: their lane was synchronised.
  void Save(SaveRequest request);

  // Of states and latents that wait or are being saved.
  uint64_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  void Run();
  uint64_t BytesOf(const SaveRequest& request) const;
  absl::Status Prepare();
  absl::StatusOr<std::vector<PartReceipt>> Put(SaveRequest& request);
  absl::Status PutState(SaveRequest& request, std::vector<PartReceipt>* receipts);
  absl::StatusOr<PartReceipt> PutOnePiece(const SaveRequest& request, LatentPiece piece);

  StateStore* const store_;
  const StateLayout* const layout_;
  kernels::Backend* const device_;  // nullptr: states are in the host's memory
  BufferPool host_buffers_;
  // With a device; used by the saver's thread only, once they are made.
  std::unique_ptr<kernels::Operators> copy_lane_;
  PooledBuffer staged_;  // as large as a state, or a whole piece if that is larger
  absl::Status prepared_;

  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> queued_bytes_{0};
  std::atomic<int64_t> pending_{0};
  ClosableQueue<SaveRequest> queue_;
  std::thread thread_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_BOUNDARY_SAVER_H_
