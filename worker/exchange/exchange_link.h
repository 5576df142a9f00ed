// The sending side of the gRPC transport: one stream to one peer.
#ifndef DELTAFILL_WORKER_EXCHANGE_EXCHANGE_LINK_H_
#define DELTAFILL_WORKER_EXCHANGE_EXCHANGE_LINK_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "worker/exchange/boundary_exchange.h"

namespace deltafill::worker {

struct ExchangeLinkLimits {
  // Sent and not yet acknowledged: the credits. One message may always be under way, however large.
  size_t unacknowledged_bytes_max = size_t{64} << 20;
  size_t piece_bytes_max = size_t{1} << 20;
  // A peer that has not acknowledged or accepted anything for this long is lost.
  std::chrono::milliseconds unreachable_after{5000};
};

// Messages that Send had accepted for this attempt did not arrive, and never will. Called from the
// link's thread, without locks.
using MessagesLost = std::function<void(const AttemptKey& attempt, const absl::Status& cause)>;

// Thread-safe. Connects at the first message, and again after a stream has broken: then everything
// unacknowledged is sent once more (receivers drop repetitions).
class ExchangeLink {
 public:
  // `peer` names the worker in messages: "worker 3 at 10.0.0.7:7003".
  ExchangeLink(std::string peer, std::string address, const ExchangeLinkLimits& limits,
               MessagesLost lost);
  // Drops what is unacknowledged; Flush before for a clean end.
  ~ExchangeLink();
  ExchangeLink(const ExchangeLink&) = delete;
  ExchangeLink& operator=(const ExchangeLink&) = delete;

  // Copies the bytes and returns as soon as a stream to the peer stands and there is credit.
  // UNAVAILABLE naming the worker once it is lost; the next Send tries it again. CANCELLED within
  // 20 ms after is_cancelled (asked while waiting only) says so.
  absl::Status Send(const BoundaryAddress& address, std::span<const std::byte> bytes,
                    const std::function<bool()>& is_cancelled);

  // Waits until everything is acknowledged; false if that did not happen in time or the peer is
  // lost.
  bool Flush(std::chrono::milliseconds timeout);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_EXCHANGE_LINK_H_
