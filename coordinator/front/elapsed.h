// How long something took, and what time it is.
#ifndef DELTAFILL_COORDINATOR_FRONT_ELAPSED_H_
#define DELTAFILL_COORDINATOR_FRONT_ELAPSED_H_

#include <chrono>
#include <cstdint>

namespace deltafill::coordinator {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_ELAPSED_H_
