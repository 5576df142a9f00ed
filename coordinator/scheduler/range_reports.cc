// What workers report of ranges: progress, ends, logits, failures.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

PromptState* Scheduler::FindCurrent(const AttemptRef& attempt) {
  const auto found = prompts_.find(attempt.prompt);
  if (found == prompts_.end()) return nullptr;
  PromptState& prompt = found->second;
  const bool current = prompt.attempt == attempt.attempt && prompt.phase == PromptPhase::kRunning;
  return current ? &prompt : nullptr;
}

void Scheduler::AddProgress(PromptState& prompt, uint32_t range, uint32_t layers_done) {
  PrefillState& prefill = *prompt.prefill;
  RangeState& state = prefill.ranges[range];
  const uint32_t layers = std::min(layers_done, prefill.layers);
  if (layers <= state.layers_done) return;
  prefill.layer_tokens_done +=
      prefill.spans[range].token_count * uint64_t{layers - state.layers_done};
  state.layers_done = layers;
  const uint64_t tokens_done = prefill.start_boundary + prefill.layer_tokens_done / prefill.layers;
  if (tokens_done <= prefill.tokens_reported) return;
  prefill.tokens_reported = tokens_done;
  prompt.observer->OnProgress(tokens_done, prompt.attempt);
}

void Scheduler::OnRangeProgress(WorkerNumber number, const AttemptRef& attempt, uint32_t range,
                                uint32_t layers_done) {
  const auto worker = workers_.find(number);
  if (worker == workers_.end()) return;
  worker->second.heard_s = worker->second.progressed_s = clock_();
  PromptState* prompt = FindCurrent(attempt);
  if (prompt == nullptr || prompt->prefill == nullptr) return;
  prompt->prefill->progressed_s = clock_();
  if (range >= prompt->prefill->next_range) return;
  AddProgress(*prompt, range, layers_done);
}

void Scheduler::OnRangeDone(WorkerNumber number, const AttemptRef& attempt, uint32_t range,
                            double restore_s) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  WorkerState& worker = found->second;
  worker.heard_s = worker.progressed_s = clock_();
  PromptState* prompt = FindCurrent(attempt);
  if (prompt == nullptr || prompt->prefill == nullptr) return;
  prompt->prefill->progressed_s = clock_();
  PrefillState& prefill = *prompt->prefill;
  const auto given = std::find_if(
      worker.queue.begin(), worker.queue.end(),
      [&](const GivenRange& entry) { return entry.attempt == attempt && entry.range == range; });
  if (given == worker.queue.end()) return;
  worker.queue.erase(given);
  NoteFront(worker);
  prompt->last_done_s = clock_();
  prompt->timings.restore_s += restore_s;
  prefill.ranges[range].done = true;
  ++prefill.ranges_done;
  AddProgress(*prompt, range, prefill.layers);
  FinishIfComplete(*prompt);
  Settle();
}

void Scheduler::OnLastLogits(WorkerNumber number, const AttemptRef& attempt,
                             const std::string& values) {
  const auto worker = workers_.find(number);
  if (worker == workers_.end()) return;
  worker->second.heard_s = clock_();
  const auto found = prompts_.find(attempt.prompt);
  if (found == prompts_.end() || found->second.prefill == nullptr) return;
  PromptState& prompt = found->second;
  if (!prompt.prefill->logits_pending) return;
  const uint64_t expected = uint64_t{worker->second.profile.model.vocabulary} * sizeof(float);
  if (values.size() != expected) {
    AbortAttempt(prompt);
    Finish(prompt,
           absl::InternalError(absl::StrCat("worker ", worker->second.profile.name, " sent ",
                                            values.size(), " bytes of logits, not ", expected)),
           "");
    return Settle();
  }
  prompt.prefill->logits_pending = false;
  prompt.observer->OnLogits(values);
  if (FinishIfComplete(prompt)) Settle();
}

void Scheduler::OnAttemptFailed(WorkerNumber number, const AttemptRef& attempt,
                                const AttemptFailure& failure) {
  const auto worker = workers_.find(number);
  if (worker == workers_.end()) return;
  worker->second.heard_s = clock_();
  PromptState* prompt = FindCurrent(attempt);
  if (prompt == nullptr) return;
  const std::string message(failure.status.message());
  PrefillState* prefill = prompt->prefill.get();
  if (failure.stored_state_lost && prefill != nullptr && prefill->started_from_kept) {
    const auto kept = prefill->kept.find(prefill->start_boundary);
    if (prefill->has_latents) {
      ForgetStart(*prefill);
    } else if (kept != prefill->kept.end()) {
      if (kept->second.recovery) output_->ReleaseLeases(kept->second.lease_ids);
      prefill->kept.erase(kept);
    }
    RetryAttempt(*prompt, message, 0.0);
  } else if (failure.stored_state_lost) {
    AbortAttempt(*prompt);
    Finish(*prompt, absl::DataLossError(message), "");
  } else if (failure.peer_lost && prefill != nullptr) {
    RetryAttempt(*prompt, message, options_.peer_retry_s);
  } else {
    AbortAttempt(*prompt);
    const absl::Status status =
        failure.status.ok()
            ? absl::InternalError(absl::StrCat("worker ", worker->second.profile.name,
                                               " failed without saying why"))
            : FromWorker(failure.status);
    Finish(*prompt, status, "");
  }
  Settle();
}

}  // namespace deltafill::coordinator
