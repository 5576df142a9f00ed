// The sending side of an exchange between processes: one stream to one peer, and beside it a device
// link where both have GPUs that can have one.
#ifndef DELTAFILL_WORKER_EXCHANGE_EXCHANGE_LINK_H_
#define DELTAFILL_WORKER_EXCHANGE_EXCHANGE_LINK_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/exchange/boundary_exchange.h"
#include "worker/exchange/device_link.h"

namespace deltafill::worker {

struct ExchangeLinkLimits {
  // Sent and not yet acknowledged: the credits. One message may always be under way, however large.
  size_t unacknowledged_bytes_max = size_t{64} << 20;
  size_t piece_bytes_max = size_t{1} << 20;
  // A peer that cannot be connected to, and has not acknowledged anything, for this long is lost.
  std::chrono::milliseconds unreachable_after{5000};
  // So is one that answers pings but takes nothing for this long, while there is something. Taking
  // needs no computing; by a device link it waits for room on the peer's card.
  std::chrono::milliseconds stuck_after{120'000};
  // Opening a device link takes a second or so; without an answer the bytes go through the host.
  std::chrono::milliseconds device_open_timeout{20'000};
};

// Messages that Send had accepted for this attempt did not arrive, and never will. Called from the
// link's thread, without locks.
using MessagesLost = std::function<void(const AttemptKey& attempt, const absl::Status& cause)>;

// Bytes on their way, shared by those who send them.
using SharedState = std::shared_ptr<const ReceivedState>;

// How states in device memory leave this process.
struct DeviceSending {
  std::shared_ptr<DeviceTransport> transport;  // nullptr: through the host only
  // A copy on the host, for peers without a device link. Called from the link's thread.
  std::function<absl::StatusOr<SharedState>(const ReceivedState&)> copy_to_host;
};

struct ExchangeLinkOptions {
  ExchangeLinkLimits limits;
  MessagesLost lost;
  DeviceSending device;
  // Opened and failed device links, and each stream's traffic when it ends. May be empty; from the
  // link's thread and LogTraffic's.
  std::function<void(const std::string& line)> log;
};

// Thread-safe. Connects at the first message, and again after a stream has broken: then everything
// unacknowledged is sent once more (receivers drop repetitions). Each stream opens a device link of
// its own, and takes all bytes itself where there is none.
class ExchangeLink {
 public:
  // `peer` names the worker in messages: "worker 3 at 10.0.0.7:7003".
  ExchangeLink(std::string peer, const std::string& address, ExchangeLinkOptions options);
  // Drops what is unacknowledged; Flush before for a clean end.
  ~ExchangeLink();
  ExchangeLink(const ExchangeLink&) = delete;
  ExchangeLink& operator=(const ExchangeLink&) = delete;

  // Keeps the state and returns as soon as a stream to the peer stands and there is credit; the
  // state is complete and does not change any more. On a device it needs DeviceSending.
  // UNAVAILABLE naming the worker once it is lost; the next Send tries it again. CANCELLED within
  // 20 ms after is_cancelled (asked while waiting only) says so.
  absl::Status Send(const BoundaryAddress& address, SharedState state,
                    const std::function<bool()>& is_cancelled);

  // Waits until everything is acknowledged; false if that did not happen in time or the peer is
  // lost.
  bool Flush(std::chrono::milliseconds timeout);

  // What has passed since the last such line, to the log.
  void LogTraffic();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_EXCHANGE_LINK_H_
