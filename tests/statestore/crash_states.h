// The states that the crash test's writer stores, and its checker expects.
#ifndef DELTAFILL_TESTS_STATESTORE_CRASH_STATES_H_
#define DELTAFILL_TESTS_STATESTORE_CRASH_STATES_H_

#include <vector>

#include "tests/statestore/store_fixture.h"

namespace deltafill::testing {

// State index has a part of its own and one that it shares with its neighbours.
struct CrashState {
  CrashState(const TenantSalt& salt, uint32_t index)
      : id(SampleChain(salt, 1000 * index, 1)[0]),
        floats_per_layer(64 + (index / 4) % 7 * 8000),
        seeds{100'000 + index, index / 4} {}

  StateId id;
  uint32_t floats_per_layer;
  std::vector<uint32_t> seeds;
};

}  // namespace deltafill::testing

#endif  // DELTAFILL_TESTS_STATESTORE_CRASH_STATES_H_
