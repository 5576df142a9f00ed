// Giving ranges to workers.
//
// Rules. (1) Ranges of an attempt are given in ascending order. (2) A worker computes what it was
// given in the order in which it was given. (3) A worker that hands a boundary state on never waits
// for the receiver longer than it takes the receiver to be given the range: either the receiver
// keeps what arrives early, or the sender waits; both are fine. (4) Range r + 1 is given as soon as
// range r has started (it is at the front of its worker, or done) whatever its worker's queue;
// earlier if that queue has room.
//
// No deadlock. Number all given ranges by when they were given. Take the unfinished one with the
// lowest number, (prompt p, range r). Everything given to its worker before is finished, so it is
// at the front. Range r - 1 of p has a lower number by (1), so it is finished and has handed
// everything on. By (4) range r + 1 has been given, or will be with the event that put r in front,
// so that the hand-over of r is taken. So r ends, and with it, one by one, every range. This holds
// for any placement; a range that has not been given, and that no range before it has named as its
// next, may be placed anew at any time.
//
// Bounds. A queue holds at most ranges_queued_max + prompts_running_max ranges: by (4) at most one
// range a prompt is given beyond ranges_queued_max and has not started. A receiver holds early
// boundary states of at most one range a prompt, the one after the last given, and by (4) only
// while that order is on its way.
//
// Fairness. Prompts take turns, and by (4) every prompt has always a range that has started or
// waits behind a bounded number of them: a short prompt waits for a few ranges, never for a long
// prompt.
#include <utility>

#include "coordinator/latent_parts.h"
#include "coordinator/scheduler/latents.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

bool Scheduler::HasStarted(const PromptState& prompt, uint32_t range) const {
  const PrefillState& prefill = *prompt.prefill;
  if (prefill.ranges[range].done) return true;
  const auto worker = workers_.find(prefill.placement[range]);
  if (worker == workers_.end() || worker->second.queue.empty()) return false;
  const GivenRange& front = worker->second.queue.front();
  return front.attempt.prompt == prompt.number && front.range == range;
}

bool Scheduler::CanGive(PromptState& prompt) const {
  if (prompt.phase != PromptPhase::kRunning) return false;
  PrefillState& prefill = *prompt.prefill;
  const uint32_t range = prefill.next_range;
  if (range >= prefill.spans.size()) return false;
  const auto worker = workers_.find(prefill.placement[range]);
  if (worker == workers_.end()) return false;
  if (worker->second.queue.size() < options_.ranges_queued_max) return true;
  // All ranges, not just the last: reports of different workers overtake each other, and the bound
  // counts what has not started as far as is known here.
  while (prefill.started_end < range && HasStarted(prompt, prefill.started_end)) {
    ++prefill.started_end;
  }
  return prefill.started_end == range;
}

void Scheduler::Dispatch() {
  for (auto turn = turns_.begin(); turn != turns_.end();) {
    PromptState& prompt = prompts_.at(*turn);
    if (!CanGive(prompt)) {
      ++turn;
      continue;
    }
    GiveRange(prompt);
    // Its turn is over; start again with whoever has waited longest.
    turns_.splice(turns_.end(), turns_, turn);
    turn = turns_.begin();
  }
}

void Scheduler::GiveRange(PromptState& prompt) {
  PrefillState& prefill = *prompt.prefill;
  const uint32_t range = prefill.next_range++;
  const WorkerNumber number = prefill.placement[range];
  WorkerState& worker = workers_.at(number);

  RangeOrder order;
  order.attempt = {prompt.number, prompt.attempt};
  order.range = range;
  order.span = prefill.spans[range];
  order.tokens = prefill.work.tokens;
  order.tokens_begin = prefill.work.tokens_begin;
  order.tenant = prefill.work.tenant;
  if (range > 0) {
    order.source.kind = SourceOrder::Kind::kPeer;
    order.source.peer = prefill.placement[range - 1];
  } else if (prefill.start_boundary > 0) {
    order.source.kind = SourceOrder::Kind::kStored;
    order.source.part_ids = IdsWithoutLatents(AttemptStartParts(prefill));
  }
  const bool last = range + 1 == prefill.spans.size();
  if (!last) {
    order.hand_on = true;
    order.next = prefill.placement[range + 1];
    order.next_address = workers_.at(order.next).profile.exchange_address;
    prefill.involved.insert(order.next);
  }
  order.last_logits = last && prefill.logits_pending;
  AddBoundaries(prefill, order);
  if (prefill.has_latents) AddLatents(prefill, number, order);
  prefill.involved.insert(number);
  const double predicted_s =
      RangeSeconds(worker.profile.costs, order.span,
                   LayerStack(prefill.layers, worker.profile.model.latents.layers));
  worker.queue.push_back({order.attempt, range, predicted_s});
  output_->Send(number, order);
  if (worker.queue.size() == 1) worker.progressed_s = clock_();
  NoteFront(worker);
}

// The requested boundaries inside the range that are not stored yet, and a recovery boundary at its
// end when the last boundary was asked for recovery_interval_s ago.
void Scheduler::AddBoundaries(PrefillState& prefill, RangeOrder& order) {
  const uint64_t end = order.span.first_token + order.span.token_count;
  auto boundary = prefill.pending.upper_bound(order.span.first_token);
  for (; boundary != prefill.pending.end() && *boundary <= end; ++boundary) {
    if (prefill.waiting.count(*boundary) == 0) order.boundaries.push_back({*boundary, false});
  }
  const double now_s = clock_();
  const bool asked_at_end = !order.boundaries.empty() && order.boundaries.back().boundary == end;
  const bool due = options_.recovery_interval_s > 0 && order.hand_on &&
                   now_s - prefill.boundary_asked_s >= options_.recovery_interval_s;
  if (due && !asked_at_end && prefill.kept.count(end) + prefill.waiting.count(end) == 0) {
    order.boundaries.push_back({end, true});
  }
  if (due || asked_at_end) prefill.boundary_asked_s = now_s;
}

// A prompt's time starts when its first range is at the front of a worker.
void Scheduler::NoteFront(const WorkerState& worker) {
  if (worker.queue.empty()) return;
  const auto found = prompts_.find(worker.queue.front().attempt.prompt);
  if (found != prompts_.end() && found->second.started_s < 0) {
    found->second.started_s = clock_();
  }
}

}  // namespace deltafill::coordinator
