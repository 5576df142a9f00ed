// How long something took.
#ifndef DELTAFILL_COORDINATOR_FRONT_ELAPSED_H_
#define DELTAFILL_COORDINATOR_FRONT_ELAPSED_H_

#include <chrono>

namespace deltafill::coordinator {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_ELAPSED_H_
