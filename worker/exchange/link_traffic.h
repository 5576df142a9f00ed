// What has passed over one stream of an exchange link, for the log.
#ifndef DELTAFILL_WORKER_EXCHANGE_LINK_TRAFFIC_H_
#define DELTAFILL_WORKER_EXCHANGE_LINK_TRAFFIC_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "statestore/part.h"

namespace deltafill::worker {

// Thread-safe.
class LinkTraffic {
 public:
  using Clock = std::chrono::steady_clock;

  // One message that took from `start` until now.
  void Add(bool by_device_link, PartKind kind, size_t bytes, Clock::time_point start);

  // "by device link: recurrent 3072 messages, 3221225472 bytes, 0.412 s; in the stream: latent
  // ..."; seconds are the sum over the messages. "" if nothing has passed since the last call.
  std::string Take();

 private:
  struct Sum {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    double seconds = 0;
  };
  std::mutex mutex_;
  std::map<std::pair<bool, PartKind>, Sum> sums_;  // guarded by mutex_; by_device_link, kind
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_LINK_TRAFFIC_H_
