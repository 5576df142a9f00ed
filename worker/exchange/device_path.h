// The sender's end of the device links that one exchange link opens, stream after stream.
#ifndef DELTAFILL_WORKER_EXCHANGE_DEVICE_PATH_H_
#define DELTAFILL_WORKER_EXCHANGE_DEVICE_PATH_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/exchange/device_link.h"

namespace deltafill::worker {

// What the receiver needs to open its end.
struct DeviceOffer {
  DeviceLinkId id{};
  std::string card;
};

// Used by the link's thread, but for what is said to be thread-safe.
class DevicePath {
 public:
  // transport may be nullptr: nothing is ever offered.
  DevicePath(std::shared_ptr<DeviceTransport> transport, std::chrono::milliseconds open_timeout);

  // A stream begins. nullopt: without a device link, because there is no transport, the receiver
  // has refused before (offers cost it nothing, but NCCL keeps a thread here for each), or links
  // have failed twice without a message in between.
  absl::StatusOr<std::optional<DeviceOffer>> Offer();

  // Thread-safe: the receiver's answer to the offer. OK: its end is open; FAILED_PRECONDITION: it
  // refuses every offer; INTERNAL: it failed.
  void SetAnswer(absl::Status answer);

  // Opens the link that was offered, and waits until the receiver has opened it too. `ended` is
  // asked while this waits: the stream is over. The receiver's answer if that is an error; INTERNAL
  // with what failed here.
  absl::StatusOr<std::unique_ptr<DeviceLink>> Open(const StopAsked& ended);

  // Thread-safe: a link failed, or a message has passed over it.
  void CountFailure() { ++failures_; }
  void CountSuccess() { failures_ = 0; }

 private:
  static constexpr int kFailuresMax = 2;

  bool HasRefused();  // or failed

  const std::shared_ptr<DeviceTransport> transport_;
  const std::chrono::milliseconds open_timeout_;
  std::atomic<int> failures_{0};
  bool refused_ = false;  // for good
  DeviceLinkId id_{};

  std::mutex mutex_;
  std::condition_variable answered_;
  std::optional<absl::Status> answer_;  // guarded by mutex_
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_DEVICE_PATH_H_
