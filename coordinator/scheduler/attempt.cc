// Attempts of a prefill: where one starts, how it is laid out over the workers, how it ends.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/scheduler/latents.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

Scheduler::Scheduler(const SchedulerOptions& options, Clock clock, SchedulerOutput* output)
    : options_(options),
      clock_(std::move(clock)),
      output_(output),
      prompt_last_(options.prompt_last) {}

std::vector<WorkerNumber> Scheduler::UsableWorkers(const PromptState& prompt) const {
  std::vector<WorkerNumber> usable;
  for (const auto& [number, worker] : workers_) {
    if (!worker.draining && worker.profile.model.fingerprint == prompt.fingerprint &&
        worker.profile.model.numerics == prompt.numerics &&
        LatentTokens(prompt) <= worker.profile.latent_tokens_max) {
      usable.push_back(number);
    }
  }
  return usable;
}

void Scheduler::WaitForWorker(PromptState& prompt) {
  prompt.phase = PromptPhase::kWithoutWorker;
  prompt.wait_until_s = clock_() + options_.worker_grace_s;
}

// The deepest stored boundary before everything that is still to be delivered. False if that got
// the prompt no further too many times in a row.
bool Scheduler::ChooseStart(PromptState& prompt) {
  PrefillState& prefill = *prompt.prefill;
  const uint64_t size = prefill.work.end();
  const uint64_t previous = prefill.start_boundary;
  const uint64_t needed = prefill.pending.empty() ? size : *prefill.pending.begin();
  prefill.start_boundary = prefill.work.start.boundary;
  prefill.started_from_kept = false;
  const auto after = prefill.kept.lower_bound(needed);
  if (after != prefill.kept.begin()) {
    const uint64_t deepest = std::prev(after)->first;
    if (deepest > prefill.start_boundary) {
      prefill.start_boundary = deepest;
      prefill.started_from_kept = true;
    }
  }
  // Tokens after the last thing that is still missing are not computed again.
  const bool whole = prompt.attempt == 0 || prefill.logits_pending || prefill.pending.empty();
  prefill.end_token = whole ? size : *prefill.pending.rbegin();
  if (prompt.attempt > 0 && prefill.start_boundary > previous) prompt.failures = 0;
  return prompt.failures <= options_.failures_max;
}

void Scheduler::BeginAttempt(PromptState& prompt) {
  PrefillState& prefill = *prompt.prefill;
  const std::vector<WorkerNumber> workers = UsableWorkers(prompt);
  if (workers.empty()) return WaitForWorker(prompt);
  ChooseStart(prompt);
  std::vector<WorkerSlot> slots;
  for (WorkerNumber number : workers) {
    const WorkerState& worker = workers_.at(number);
    double queued_s = 0.0;
    for (const GivenRange& given : worker.queue) queued_s += given.predicted_s;
    slots.push_back({worker.profile.costs, worker.profile.range_tokens_max, queued_s});
  }
  prefill.layers = workers_.at(workers[0]).profile.model.layers;
  prefill.has_latents = !workers_.at(workers[0]).profile.model.latents.layers.empty();
  PlanProblem problem;
  problem.first_token = prefill.start_boundary;
  problem.end_token = prefill.end_token;
  problem.layers = prefill.layers;
  problem.attention_layers = workers_.at(workers[0]).profile.model.latents.layers;
  problem.wavefront_only = prefill.work.schedule == ScheduleChoice::kWavefront;
  problem.any_exactness = prefill.work.any_exactness;
  const absl::StatusOr<PrefillPlan> plan = Plan(problem, slots, options_.plan);
  ++prompt.attempt;
  if (!plan.ok()) {
    return Finish(prompt,
                  absl::InternalError(absl::StrCat("plan: ", std::string(plan.status().message()))),
                  "");
  }
  LayOut(prompt, *plan, workers);
  PlanSummary summary;
  summary.schedule = plan->schedule;
  summary.why = plan->why;
  summary.workers = plan->workers;
  summary.ranges = static_cast<uint32_t>(plan->ranges.size());
  summary.range_tokens = plan->range_tokens;
  summary.predicted_s = plan->predicted_s;
  prompt.observer->OnPlanned(summary, prompt.attempt);
}

void Scheduler::LayOut(PromptState& prompt, const PrefillPlan& plan,
                       const std::vector<WorkerNumber>& workers) {
  PrefillState& prefill = *prompt.prefill;
  prompt.phase = PromptPhase::kRunning;
  prompt.wait_until_s = -1.0;
  prefill.spans = plan.ranges;
  prefill.placement.clear();
  for (uint32_t slot : plan.placement) prefill.placement.push_back(workers[slot]);
  prefill.placed = {prefill.placement.begin(), prefill.placement.end()};
  prefill.ranges.assign(plan.ranges.size(), RangeState());
  prefill.involved.clear();
  prefill.holds.clear();
  prefill.next_range = 0;
  prefill.started_end = 0;
  prefill.ranges_done = 0;
  prefill.layer_tokens_done = 0;
  prefill.tokens_reported = 0;
  prefill.progressed_s = clock_();
  prefill.boundary_asked_s = clock_();
}

// Whatever was given or named for the attempt is told to forget it. Harmless if nothing was.
void Scheduler::AbortAttempt(PromptState& prompt) {
  const AttemptRef attempt{prompt.number, prompt.attempt};
  if (prompt.single != nullptr) {
    const auto found = workers_.find(prompt.single->worker);
    if (prompt.phase == PromptPhase::kRunning && found != workers_.end()) {
      found->second.single_work.erase(prompt.number);
      output_->Send(found->first, AbortOrder{attempt});
    }
    return;
  }
  if (prompt.phase != PromptPhase::kRunning) return;
  PrefillState& prefill = *prompt.prefill;
  prompt.timings.tokens_computed += prefill.layer_tokens_done / prefill.layers;
  prefill.layer_tokens_done = 0;
  for (WorkerNumber number : prefill.involved) {
    const auto found = workers_.find(number);
    if (found == workers_.end()) continue;
    std::erase_if(found->second.queue,
                  [&](const GivenRange& given) { return given.attempt.prompt == prompt.number; });
    output_->Send(number, AbortOrder{attempt});
    found->second.progressed_s = clock_();  // perhaps it has another range at the front now
    NoteFront(found->second);
  }
  prefill.involved.clear();
}

void Scheduler::RetryAttempt(PromptState& prompt, const std::string& reason, double retry_s) {
  AbortAttempt(prompt);
  ++prompt.failures;
  // Also what is complete by now, and needs no further attempt, ends here.
  prompt.phase = PromptPhase::kRetrying;
  prompt.wait_until_s = clock_() + retry_s;
  if (FinishIfComplete(prompt)) return;
  if (!ChooseStart(prompt)) {
    return Finish(
        prompt,
        absl::UnavailableError(absl::StrCat(
            "gave up after ", prompt.failures, " attempts in a row that got no further than token ",
            prompt.prefill->start_boundary, "; the last ended because ", reason)),
        "");
  }
  if (retry_s <= 0) BeginAttempt(prompt);
}

// Everything asked for is delivered: with all ranges done, or after an attempt was given up.
bool Scheduler::FinishIfComplete(PromptState& prompt) {
  const PrefillState& prefill = *prompt.prefill;
  if (!prefill.pending.empty() || prefill.logits_pending) return false;
  if (prompt.phase == PromptPhase::kRunning && prefill.ranges_done < prefill.ranges.size()) {
    return false;
  }
  Finish(prompt, absl::OkStatus(), "");
  return true;
}

void Scheduler::Finish(PromptState& prompt, const absl::Status& status,
                       const std::string& finish_reason) {
  const double now_s = clock_();
  if (PrefillState* prefill = prompt.prefill.get()) {
    prompt.timings.tokens_computed += prefill->layer_tokens_done / prefill->layers;
    ReleaseRecovery(*prefill);
    EndLatents(*prefill, *prompt.observer);
  }
  const double started_s = prompt.started_s < 0 ? now_s : prompt.started_s;
  prompt.timings.queue_s = started_s - prompt.submitted_s;
  prompt.timings.compute_s = std::max(started_s, prompt.last_done_s) - started_s;
  std::erase(queue_, prompt.number);
  std::erase(turns_, prompt.number);
  // The observer is called last: everything is as if the prompt had never been there.
  const std::shared_ptr<PromptObserver> observer = std::move(prompt.observer);
  const WorkTimings timings = prompt.timings;
  prompts_.erase(prompt.number);
  observer->OnFinished(status, timings, finish_reason);
}

}  // namespace deltafill::coordinator
