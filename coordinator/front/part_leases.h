// Leases of parts that were put but belong to no manifest yet.
#ifndef DELTAFILL_COORDINATOR_FRONT_PART_LEASES_H_
#define DELTAFILL_COORDINATOR_FRONT_PART_LEASES_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

// Gives the leases back. A failure is logged and costs nothing but space until the leases end.
void ReleaseLeases(StateStore& store, std::span<const uint64_t> lease_ids);
void ReleaseParts(StateStore& store, std::span<const PartReceipt> parts);

// Leases what states after `start` share with it, so that it is there when they are published.
// DATA_LOSS naming the part if one is gone or damaged: look up again.
absl::StatusOr<std::vector<PartReceipt>> LeaseShared(StateStore& store, const StartState& start);

// Holds the leases of parts while they are read, and gives them back.
class LeasedParts {
 public:
  LeasedParts(StateStore& store, std::vector<PartReceipt> parts)
      : store_(store), parts_(std::move(parts)) {}
  ~LeasedParts() { ReleaseParts(store_, parts_); }
  LeasedParts(const LeasedParts&) = delete;
  LeasedParts& operator=(const LeasedParts&) = delete;

 private:
  StateStore& store_;
  const std::vector<PartReceipt> parts_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PART_LEASES_H_
