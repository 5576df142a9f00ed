// Which boundaries of a snapshot are worth keeping: those that are expected to save more recompute
// than their bytes are worth. Pure.
#ifndef DELTAFILL_COORDINATOR_SNAPSHOTS_CHECKPOINT_PLAN_H_
#define DELTAFILL_COORDINATOR_SNAPSHOTS_CHECKPOINT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace deltafill::coordinator {

// Expected updates, of one, whose first changed token is there.
struct FirstChange {
  uint64_t token = 0;
  double weight = 0.0;  // >= 0
};

struct CheckpointPrices {
  double seconds_per_token = 0.0;  // of recomputing
  double seconds_per_byte = 0.0;   // that keeping a byte must save an update
  uint64_t state_bytes = 0;
  size_t count_max = 0;
};

// candidates: boundaries, strictly ascending, positive. changes: ascending by token. An update
// whose first changed token is t recomputes from the deepest kept boundary <= t, or from 0; the
// choice minimizes the expected recompute plus the price of what is kept, with at most count_max
// kept. Exact: the costs satisfy the quadrangle inequality, so the best choice for a price is a
// lower hull of lines, and a higher price keeps fewer. O((candidates + changes) * 64).
std::vector<uint64_t> ChooseCheckpoints(std::span<const uint64_t> candidates,
                                        std::span<const FirstChange> changes,
                                        const CheckpointPrices& prices);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SNAPSHOTS_CHECKPOINT_PLAN_H_
