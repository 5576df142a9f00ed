// Measures what the coordinator's planner needs to know of a worker's speed.
#ifndef DELTAFILL_WORKER_RUNTIME_COST_PROBE_H_
#define DELTAFILL_WORKER_RUNTIME_COST_PROBE_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/exchange/boundary_exchange.h"
#include "worker/model/model.h"
#include "worker/runtime/worker_profile.h"

namespace deltafill::worker {

struct CostProbeOptions {
  int threads = 1;
  int64_t range_tokens_max = 4096;  // no longer range is tried
  double budget_s = 0.3;            // aimed at; a slow model takes as long as one block does
};

// The longest range that is run. A card is not busy with a short one; a longer one than this tells
// nothing more.
inline int64_t CostProbeRows(int64_t range_tokens_max, bool on_device) {
  return std::min<int64_t>(range_tokens_max, on_device ? 4096 : 1024);
}

// Tokens of the range that is compared with a range of one block, which takes block_s. A device
// takes no longer for more rows until it is busy, so that it is asked for all of rows_max; a host
// for what its tries have time for. A multiple of 64.
int64_t ComparedTokens(double block_s, int64_t rows_max, bool on_device, double budget_s);

// For people, in microseconds.
std::string DescribeCosts(const CostConstants& costs);

// Runs a few short ranges of the real model from the zero state and hands one layer's boundary
// state to `target` and back out of `exchange` (which must be where the target's messages arrive).
// Forgets every attempt of the exchange at the end, so it is for workers that have not attached
// yet.
absl::StatusOr<CostConstants> MeasureCosts(Model& model, BoundaryExchange& exchange,
                                           const ExchangeTarget& target,
                                           const CostProbeOptions& options);

// Adds to the costs of exchanging what announcing takes: for each message that a layer of either
// kind hands on, a small one of the host's. For states whose bytes come another way, by device
// link. Otherwise as MeasureCosts.
absl::Status AddAnnouncements(const StateLayout& layout, BoundaryExchange& exchange,
                              const ExchangeTarget& target, CostConstants* costs);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_COST_PROBE_H_
