// Waiting for what another thread will have done.
#ifndef DELTAFILL_TESTS_TESTING_EVENTUALLY_H_
#define DELTAFILL_TESTS_TESTING_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace deltafill::test {

// Whether `condition()` becomes true within half a minute.
template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 6000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_EVENTUALLY_H_
