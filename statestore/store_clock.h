// Time as a store sees it; tests put their own here.
#ifndef DELTAFILL_STATESTORE_STORE_CLOCK_H_
#define DELTAFILL_STATESTORE_STORE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace deltafill {

class StoreClock {
 public:
  virtual ~StoreClock() = default;
  // Never goes back; leases run by it.
  virtual int64_t SteadyMs() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  // Microseconds since 1970 (UTC); orders eviction across restarts.
  virtual int64_t UnixUs() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_STORE_CLOCK_H_
