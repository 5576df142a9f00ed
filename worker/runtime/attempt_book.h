// Which attempts this worker works on, and which have ended before their time.
#ifndef DELTAFILL_WORKER_RUNTIME_ATTEMPT_BOOK_H_
#define DELTAFILL_WORKER_RUNTIME_ATTEMPT_BOOK_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "absl/status/status.h"
#include "kernels/operators.h"
#include "worker/exchange/boundary_exchange.h"
#include "worker/runtime/events.h"
#include "worker/runtime/latent_shelf.h"

namespace deltafill::worker {

// Shared by all work of one attempt. Set once, never reset.
class AttemptFlag {
 public:
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

 private:
  friend class AttemptBook;
  std::atomic<bool> aborted_{false};
};
using AttemptFlagRef = std::shared_ptr<const AttemptFlag>;

// INTERNAL with the reason once the backend's device has failed for good.
absl::Status DeviceStatus(kernels::Backend& backend);

// Thread-safe.
class AttemptBook {
 public:
  // All must outlive the book. backend: that the attempts run on.
  AttemptBook(BoundaryExchange* exchange, LatentShelf* latents, EventSink* sink,
              kernels::Backend* backend)
      : exchange_(exchange), latents_(latents), sink_(sink), backend_(backend) {}

  // The attempt's flag; already set if the attempt, or a later one of the prompt, was aborted.
  AttemptFlagRef Enter(const AttemptKey& attempt);

  // Sets the flags of this and older attempts of the prompt and ends their exchange; their
  // latents are dropped.
  void Abort(const AttemptKey& attempt);

  // Sets every flag and forgets them all: for a worker whose coordinator went away.
  void AbortAll();

  // Ends the attempt here and reports why, once an attempt. CANCELLED, or an attempt that was
  // aborted before, is not reported. If the device has failed the worker has: WorkerFailed.
  void Fail(const AttemptKey& attempt, const absl::Status& status, bool stored_state_lost = false,
            bool peer_lost = false);

 private:
  static constexpr size_t kTombstonesMax = 4096;

  bool SetFlags(const AttemptKey& attempt);  // false if they were set before
  void ForgetUnused();

  BoundaryExchange* const exchange_;
  LatentShelf* const latents_;
  EventSink* const sink_;
  kernels::Backend* const backend_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<AttemptKey, std::shared_ptr<AttemptFlag>> flags_;
  size_t flags_after_cleaning_ = 0;
  std::unordered_map<uint64_t, uint32_t> tombstones_;  // prompt: newest aborted attempt
  std::list<uint64_t> tombstone_order_;                // oldest first
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_ATTEMPT_BOOK_H_
