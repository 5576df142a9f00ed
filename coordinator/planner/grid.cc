#include "coordinator/planner/grid.h"

#include <algorithm>

#include "statestore/identity.h"

namespace deltafill::coordinator {

namespace {

// Seconds of a layer's task, and until it hands on if it waits for nothing.
struct TaskSeconds {
  double whole_s = 0.0;
  double handover_s = 0.0;
};

TaskSeconds RecurrentTask(const WorkerCosts& costs, const TokenRange& range) {
  const double whole_s =
      costs.layer_fixed_s + static_cast<double>(range.token_count) * costs.layer_token_s;
  return {whole_s, costs.handover_fraction * whole_s};
}

TaskSeconds AttentionTask(const AttentionCosts& costs, const TokenRange& range) {
  const double tokens = static_cast<double>(range.token_count);
  const double before = static_cast<double>(range.first_token);
  const double keys_s = (before + tokens) * costs.key_s;
  const double pairs_s = tokens * (before + tokens / 2) * costs.pair_s;
  const double projections_s = costs.fixed_s + tokens * costs.token_s;
  return {projections_s + keys_s + pairs_s, costs.handover_fraction * projections_s};
}

}  // namespace

LayerStack::LayerStack(uint32_t layers, std::span<const uint32_t> attention_layers)
    : count(layers), is_attention(layers, false) {
  for (uint32_t layer : attention_layers) {
    if (layer >= layers || is_attention[layer]) continue;
    is_attention[layer] = true;
    ++attention_count;
  }
}

GridTimes SimulateGrid(std::span<const TokenRange> ranges, std::span<const uint32_t> placement,
                       std::span<const WorkerSlot> slots, const LayerStack& layers) {
  GridTimes times;
  std::vector<double> free_s(slots.size());
  // held[s]: tokens whose latents the worker has.
  std::vector<uint64_t> held(slots.size(), ranges.empty() ? 0 : ranges.front().first_token);
  for (size_t s = 0; s < slots.size(); ++s) free_s[s] = slots[s].queued_s;
  // handover_s[l]: when the boundary state of layer l of the range before left its worker.
  std::vector<double> handover_s(layers.count, 0.0);
  for (size_t r = 0; r < ranges.size(); ++r) {
    const uint32_t slot = placement[r];
    const WorkerCosts& costs = slots[slot].costs;
    const TaskSeconds recurrent = RecurrentTask(costs, ranges[r]);
    const TaskSeconds attention = AttentionTask(costs.attention, ranges[r]);
    const bool from_peer = r > 0 && placement[r - 1] != slot;
    const WorkerCosts& sender = slots[placement[r > 0 ? r - 1 : 0]].costs;
    const double exchange_s = from_peer ? sender.exchange_s : 0.0;
    const double rows = static_cast<double>(ranges[r].first_token - held[slot]);
    const double latents_s =
        from_peer ? sender.attention.exchange_s + rows * sender.attention.row_exchange_s : 0.0;
    double now_s = free_s[slot] + costs.range_fixed_s;
    for (uint32_t l = 0; l < layers.count; ++l) {
      if (layers.is_attention[l]) {
        const double arrival_s = r > 0 ? handover_s[l] + latents_s : 0.0;
        handover_s[l] = std::max(now_s + attention.handover_s, arrival_s);
        now_s = handover_s[l] + attention.whole_s - attention.handover_s;
        continue;
      }
      if (r > 0) now_s = std::max(now_s, handover_s[l] + exchange_s);
      handover_s[l] = now_s + recurrent.handover_s;
      now_s += recurrent.whole_s;
    }
    free_s[slot] = now_s;
    held[slot] = ranges[r].first_token + ranges[r].token_count;
    times.busy_s += RangeSeconds(costs, ranges[r], layers);
    times.finish_s = std::max(times.finish_s, now_s);
  }
  return times;
}

double RangeSeconds(const WorkerCosts& costs, const TokenRange& range, const LayerStack& layers) {
  return costs.range_fixed_s +
         (layers.count - layers.attention_count) * RecurrentTask(costs, range).whole_s +
         layers.attention_count * AttentionTask(costs.attention, range).whole_s;
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
