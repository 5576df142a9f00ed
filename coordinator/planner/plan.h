// The planner: which ranges a prompt is cut into and which worker computes which. A pure function
// of the problem and of constants that the workers measured; it says what it chose and why.
#ifndef DELTAFILL_COORDINATOR_PLANNER_PLAN_H_
#define DELTAFILL_COORDINATOR_PLANNER_PLAN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/planner/grid.h"

namespace deltafill::coordinator {

struct PlanProblem {
  uint64_t first_token = 0;  // a multiple of 64
  uint64_t end_token = 0;    // > first_token
  uint32_t layers = 1;
  std::vector<uint32_t> attention_layers;  // those of them that attend; ascending
  bool wavefront_only =
      false;  // spread over all workers even if one alone is predicted to be as fast
  bool any_exactness = false;  // the caller would take other bits; changes nothing yet
};

struct PlanOptions {
  uint64_t range_tokens = 0;  // tokens, a multiple of 64; 0: the planner's choice
  // A prompt is spread only if that saves at least this part of one worker's time, and these
  // seconds: predictions are not better than that, and the other workers may have use for the time.
  double spread_gain_min = 0.1;
  double spread_gain_s_min = 0.005;
  uint64_t ranges_max = 8192;  // a plan's size, where range_tokens leaves the choice
};

struct PrefillPlan {
  std::string schedule;             // "wavefront", or "serial": one worker
  std::vector<TokenRange> ranges;   // ascending, gapless from first_token to end_token
  std::vector<uint32_t> placement;  // placement[r]: index into the slots
  uint32_t workers = 0;             // distinct ones
  uint64_t range_tokens = 0;        // of all ranges but the last
  double predicted_s = 0.0;
  std::string why;  // one sentence
};

// Ranges are never cut at checkpoints: boundary states inside a range cost no arithmetic.
// INVALID_ARGUMENT naming the field for a malformed problem, options or slot; no slots included.
absl::StatusOr<PrefillPlan> Plan(const PlanProblem& problem, std::span<const WorkerSlot> slots,
                                 const PlanOptions& options);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_PLANNER_PLAN_H_
