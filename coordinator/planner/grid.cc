#include "coordinator/planner/grid.h"

#include <algorithm>

#include "statestore/identity.h"

namespace deltafill::coordinator {

GridTimes SimulateGrid(std::span<const TokenRange> ranges, std::span<const uint32_t> placement,
                       std::span<const WorkerSlot> slots, uint32_t layers) {
  GridTimes times;
  std::vector<double> free_s(slots.size());
  for (size_t s = 0; s < slots.size(); ++s) free_s[s] = slots[s].queued_s;
  // handover_s[l]: when the boundary state of layer l of the range before left its worker.
  std::vector<double> handover_s(layers, 0.0);
  for (size_t r = 0; r < ranges.size(); ++r) {
    const uint32_t slot = placement[r];
    const WorkerCosts& costs = slots[slot].costs;
    const double layer_s =
        costs.layer_fixed_s + static_cast<double>(ranges[r].token_count) * costs.layer_token_s;
    const bool from_peer = r > 0 && placement[r - 1] != slot;
    const double exchange_s = from_peer ? slots[placement[r - 1]].costs.exchange_s : 0.0;
    double now_s = free_s[slot] + costs.range_fixed_s;
    for (uint32_t l = 0; l < layers; ++l) {
      if (r > 0) now_s = std::max(now_s, handover_s[l] + exchange_s);
      handover_s[l] = now_s + costs.handover_fraction * layer_s;
      now_s += layer_s;
    }
    free_s[slot] = now_s;
    times.busy_s += costs.range_fixed_s + layers * layer_s;
    times.finish_s = std::max(times.finish_s, now_s);
  }
  return times;
}

double RangeSeconds(const WorkerCosts& costs, uint64_t token_count, uint32_t layers) {
  return costs.range_fixed_s +
         layers * (costs.layer_fixed_s + static_cast<double>(token_count) * costs.layer_token_s);
}

std::vector<TokenRange> CutRanges(uint64_t first_token, uint64_t end_token, uint64_t range_tokens,
                                  uint64_t range_tokens_max) {
  std::vector<TokenRange> ranges;
  if (end_token <= first_token) return ranges;
  ranges.reserve((end_token - first_token) / range_tokens + 1);
  for (uint64_t first = first_token; first < end_token; first += range_tokens) {
    ranges.push_back({first, std::min(range_tokens, end_token - first)});
  }
  const uint64_t rest = ranges.back().token_count;
  if (ranges.size() > 1 && rest <= kBlockTokenCount &&
      ranges[ranges.size() - 2].token_count + rest <= range_tokens_max) {
    ranges.pop_back();
    ranges.back().token_count += rest;
  }
  return ranges;
}

}  // namespace deltafill::coordinator
