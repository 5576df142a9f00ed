// Which boundaries a request wants kept: positions floored to blocks, merged.
#ifndef DELTAFILL_COORDINATOR_FRONT_CHECKPOINT_REQUEST_H_
#define DELTAFILL_COORDINATOR_FRONT_CHECKPOINT_REQUEST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::coordinator {

struct RequestedBoundary {
  uint64_t boundary = 0;  // a positive multiple of 64
  uint64_t position =
      0;  // the largest one asked for that floors to it; its handle's tail ends there
  friend bool operator==(const RequestedBoundary&, const RequestedBoundary&) = default;
};

// Ascending by boundary. checkpoint_at: positions in (0, tokens], strictly ascending; every: 0 or
// at least 64, stands for every, 2*every, ... <= tokens. Positions that floor to 0 are left out.
// INVALID_ARGUMENT naming the field and the limit.
absl::StatusOr<std::vector<RequestedBoundary>> MergeCheckpoints(
    std::span<const uint64_t> checkpoint_at, uint64_t every, uint64_t tokens);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_CHECKPOINT_REQUEST_H_
