#include "coordinator/planner/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "statestore/identity.h"

namespace deltafill::coordinator {
namespace {

struct Candidate {
  uint64_t range_tokens = 0;
  std::vector<uint32_t> chosen;  // slots, in the order in which they take ranges
  std::vector<TokenRange> ranges;
  std::vector<uint32_t> placement;
  GridTimes times;
};

absl::Status Validate(const PlanProblem& problem, std::span<const WorkerSlot> slots,
                      const PlanOptions& options) {
  if (slots.empty()) return absl::InvalidArgumentError("workers: none to plan for");
  if (problem.layers == 0) return absl::InvalidArgumentError("layers: 0");
  if (problem.first_token % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_token: ", problem.first_token, " is not a multiple of 64"));
  }
  if (problem.end_token <= problem.first_token) {
    return absl::InvalidArgumentError(absl::StrCat(
        "end_token: ", problem.end_token, " is not after first_token ", problem.first_token));
  }
  if (options.range_tokens % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("range_tokens: ", options.range_tokens, " is not a multiple of 64"));
  }
  for (const WorkerSlot& slot : slots) {
    if (slot.range_tokens_max < kBlockTokenCount) {
      return absl::InvalidArgumentError(
          absl::StrCat("range_tokens_max: ", slot.range_tokens_max, " is under one block"));
    }
  }
  return absl::OkStatus();
}

uint64_t FloorBlock(uint64_t tokens) { return tokens / kBlockTokenCount * kBlockTokenCount; }

// The most tokens that every chosen worker has room for.
uint64_t RangeTokensMax(std::span<const WorkerSlot> slots, std::span<const uint32_t> chosen) {
  uint64_t most = slots[chosen[0]].range_tokens_max;
  for (uint32_t slot : chosen) most = std::min(most, slots[slot].range_tokens_max);
  return most;
}

// 1, 1.5, 2, 3, 4, 6, 8, ... blocks up to the limit, the whole prompt and an even share each.
std::vector<uint64_t> CandidateLengths(const PlanProblem& problem, const PlanOptions& options,
                                       size_t workers, uint64_t range_tokens_max) {
  const uint64_t most = FloorBlock(range_tokens_max);
  if (options.range_tokens != 0) return {std::min(options.range_tokens, most)};
  const uint64_t total = problem.end_token - problem.first_token;
  // A forced wavefront gives every worker a range, if there are blocks enough.
  const uint64_t share = problem.wavefront_only ? (total + workers - 1) / workers : total;
  const uint64_t whole = FloorBlock(share + kBlockTokenCount - 1);
  const uint64_t shortest =
      FloorBlock(total / std::max<uint64_t>(1, options.ranges_max)) + kBlockTokenCount;
  std::vector<uint64_t> lengths;
  const auto add = [&](uint64_t tokens) {
    tokens = std::min({FloorBlock(tokens + kBlockTokenCount - 1), most, whole});
    if (tokens >= std::min({shortest, most, whole})) lengths.push_back(tokens);
  };
  for (uint64_t tokens = kBlockTokenCount; tokens < std::min(most, whole); tokens *= 2) {
    add(tokens);
    add(tokens + tokens / 2);
  }
  for (uint64_t rounds = 1; rounds <= 4; ++rounds) add(total / (workers * rounds) + 1);
  add(most);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

Candidate Price(const PlanProblem& problem, const LayerStack& layers,
                std::span<const WorkerSlot> slots, std::span<const uint32_t> chosen,
                uint64_t range_tokens) {
  Candidate candidate;
  candidate.range_tokens = range_tokens;
  candidate.chosen.assign(chosen.begin(), chosen.end());
  candidate.ranges = CutRanges(problem.first_token, problem.end_token, range_tokens,
                               RangeTokensMax(slots, chosen));
  candidate.placement.resize(candidate.ranges.size());
  for (size_t r = 0; r < candidate.ranges.size(); ++r) {
    candidate.placement[r] = chosen[r % chosen.size()];
  }
  candidate.times = SimulateGrid(candidate.ranges, candidate.placement, slots, layers);
  return candidate;
}

// The longest range length that is predicted to be about as fast as the fastest: longer ranges mean
// fewer commands and hand-overs, whose cost the constants do not hold in full.
Candidate BestLength(const PlanProblem& problem, std::span<const WorkerSlot> slots,
                     std::span<const uint32_t> chosen, const PlanOptions& options) {
  constexpr double kAboutAsFast = 1.02;
  const LayerStack layers(problem.layers, problem.attention_layers);
  std::vector<Candidate> candidates;
  double fastest_s = std::numeric_limits<double>::infinity();
  for (uint64_t length :
       CandidateLengths(problem, options, chosen.size(), RangeTokensMax(slots, chosen))) {
    candidates.push_back(Price(problem, layers, slots, chosen, length));
    fastest_s = std::min(fastest_s, candidates.back().times.finish_s);
  }
  return *std::find_if(candidates.rbegin(), candidates.rend(), [&](const Candidate& candidate) {
    return candidate.times.finish_s <= fastest_s * kAboutAsFast;
  });
}

// Slots by load, least loaded first: a prefix of them is what a smaller plan uses.
std::vector<uint32_t> ByLoad(std::span<const WorkerSlot> slots) {
  std::vector<uint32_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return slots[a].queued_s < slots[b].queued_s; });
  return order;
}

// The worker that would be done first with all of it.
uint32_t BestSingle(const PlanProblem& problem, std::span<const WorkerSlot> slots) {
  const TokenRange all{problem.first_token, problem.end_token - problem.first_token};
  const LayerStack layers(problem.layers, problem.attention_layers);
  uint32_t best = 0;
  double best_s = 0.0;
  for (uint32_t s = 0; s < slots.size(); ++s) {
    const double finish_s = slots[s].queued_s + RangeSeconds(slots[s].costs, all, layers);
    if (s == 0 || finish_s < best_s) {
      best = s;
      best_s = finish_s;
    }
  }
  return best;
}

std::string Describe(const Candidate& candidate) {
  return absl::StrFormat("%d range%s of %d tokens", candidate.ranges.size(),
                         candidate.ranges.size() == 1 ? "" : "s",
                         candidate.ranges.front().token_count);
}

std::string Explain(const PlanProblem& problem, const PlanOptions& options, const Candidate& best,
                    const Candidate& single, const Candidate* spread, double queued_s) {
  std::string why;
  const uint32_t workers = static_cast<uint32_t>(best.chosen.size());
  if (workers > 1) {
    const double span_s = best.times.finish_s - queued_s;
    why = absl::StrFormat(
        "wavefront over %d workers, %s: predicted %.4g s at efficiency %.2f, against %.4g s on one "
        "worker",
        workers, Describe(best), best.times.finish_s,
        span_s > 0 ? best.times.busy_s / (workers * span_s) : 1.0, single.times.finish_s);
  } else if (spread != nullptr) {
    why = absl::StrFormat(
        "one worker, %s: predicted %.4g s, against %.4g s over %d workers, too little to gain",
        Describe(best), best.times.finish_s, spread->times.finish_s, spread->chosen.size());
  } else {
    why = absl::StrFormat("one worker, %s: predicted %.4g s, %s", Describe(best),
                          best.times.finish_s, "there is nothing to spread it over");
  }
  if (options.range_tokens != 0) {
    absl::StrAppend(&why, "; range length set to ", options.range_tokens);
    if (best.range_tokens < options.range_tokens)
      absl::StrAppend(&why, ", cut to the worker's room");
  }
  if (problem.any_exactness) {
    absl::StrAppend(&why, "; exactness ANY changes nothing: every schedule there is is exact");
  }
  return why;
}

}  // namespace

absl::StatusOr<PrefillPlan> Plan(const PlanProblem& problem, std::span<const WorkerSlot> slots,
                                 const PlanOptions& options) {
  if (absl::Status status = Validate(problem, slots, options); !status.ok()) return status;
  const uint32_t single_slot = BestSingle(problem, slots);
  const Candidate single = BestLength(problem, slots, {&single_slot, 1}, options);
  const std::vector<uint32_t> order = ByLoad(slots);
  std::optional<Candidate> spread;
  for (size_t workers = 2; workers <= slots.size(); ++workers) {
    // Every count up to 8, then every fourth and all of them: enough to find a flat optimum.
    if (workers > 8 && workers % 4 != 0 && workers != slots.size()) continue;
    Candidate candidate = BestLength(problem, slots, std::span(order).first(workers), options);
    if (candidate.ranges.size() < 2) continue;
    const bool faster = !spread || candidate.times.finish_s < spread->times.finish_s * (1 - 1e-3);
    if (faster || problem.wavefront_only) spread = std::move(candidate);
  }
  const double gain_s = spread ? single.times.finish_s - spread->times.finish_s : 0.0;
  const bool use_spread = spread && (problem.wavefront_only ||
                                     (gain_s >= options.spread_gain_s_min &&
                                      gain_s >= options.spread_gain_min * single.times.finish_s));
  const Candidate& best = use_spread ? *spread : single;

  PrefillPlan plan;
  plan.schedule = use_spread ? "wavefront" : "serial";
  plan.ranges = best.ranges;
  plan.placement = best.placement;
  plan.workers = static_cast<uint32_t>(std::min(best.chosen.size(), best.ranges.size()));
  plan.range_tokens = best.ranges.front().token_count;
  plan.predicted_s = best.times.finish_s;
  plan.why = Explain(problem, options, best, single, spread ? &*spread : nullptr,
                     slots[best.chosen[0]].queued_s);
  return plan;
}

}  // namespace deltafill::coordinator
