// What tests of the exchange between processes send.
#ifndef DELTAFILL_TESTS_WORKER_EXCHANGE_FIXTURE_H_
#define DELTAFILL_TESTS_WORKER_EXCHANGE_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/model/state_layout.h"

namespace deltafill::worker {

inline constexpr size_t kLargeBytes = (size_t{5} << 20) / 2 + 4;  // three pieces

// Layer 0: 64 bytes; layer 1: kLargeBytes.
inline StateLayout OneSmallOneLarge() {
  StateLayout layout;
  layout.entries = {{0, PartKind::kRecurrent, PartDType::kF32, {16, 1, 1, 1}, 0, 64},
                    {1,
                     PartKind::kRecurrent,
                     PartDType::kF32,
                     {static_cast<uint32_t>(kLargeBytes / 4), 1, 1, 1},
                     64,
                     kLargeBytes}};
  layout.bytes = 64 + kLargeBytes + 60;
  return layout;
}

inline std::vector<std::byte> Pattern(size_t count, uint32_t seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 3);
  return bytes;
}

}  // namespace deltafill::worker

#endif  // DELTAFILL_TESTS_WORKER_EXCHANGE_FIXTURE_H_
