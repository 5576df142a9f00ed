// Publishes what a lane on a device hands on, on a thread of its own: the lane goes on issuing
// while the device still computes what is to be published.
#ifndef DELTAFILL_WORKER_RUNTIME_HAND_OVER_H_
#define DELTAFILL_WORKER_RUNTIME_HAND_OVER_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "kernels/operators.h"
#include "worker/exchange/boundary_exchange.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/closable_queue.h"

namespace deltafill::worker {

// Pushed to by one thread.
class HandOver {
 public:
  struct State {
    AttemptFlagRef flag;                          // nothing of an aborted attempt is published
    std::unique_ptr<kernels::LanePoint> written;  // reached when `view` is complete
    BoundaryAddress address;
    StateView view;
    ExchangeTarget next;
    std::shared_ptr<const void> owner;  // of the view's memory, if it has one
  };

  // The exchange outlives it.
  explicit HandOver(BoundaryExchange* exchange);
  // Ends after the state at hand; drops what else waits.
  ~HandOver();

  // Published after all that was pushed before; dropped if one of those has failed.
  void Push(State state);

  // The first error since the last Drain, as far as it is known. Does not wait.
  absl::Status status() const;

  // Waits until everything that was pushed is published or dropped. The first error, which is
  // forgotten.
  absl::Status Drain();

 private:
  void Main();
  absl::Status Publish(State& state);

  BoundaryExchange* const exchange_;
  ClosableQueue<State> queue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  size_t unpublished_ = 0;
  absl::Status status_;
  std::thread thread_;  // last
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_HAND_OVER_H_
