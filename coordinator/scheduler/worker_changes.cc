// Workers attach, drain, are heard of and are lost.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "coordinator/scheduler/latents.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

void Scheduler::AttachWorker(const WorkerProfile& profile) {
  WorkerState& worker = workers_[profile.number];
  worker.profile = profile;
  worker.heard_s = worker.progressed_s = clock_();
  std::vector<PromptNumber> waiting;
  for (const auto& [number, prompt] : prompts_) {
    if (prompt.phase == PromptPhase::kWithoutWorker) waiting.push_back(number);
  }
  for (PromptNumber number : waiting) BeginAttempt(prompts_.at(number));
  Settle();
}

// Whether the rest of an attempt depends on a worker: on a range that it has not ended or not been
// given yet, on a boundary, a piece of latents or logits that it still has to deliver, or on a
// hand-over that it has sent and that may not have arrived, as long as the next range is not done.
bool Scheduler::Needs(const PrefillState& prefill, const WorkerState& worker) const {
  const size_t count = prefill.spans.size();
  for (size_t r = 0; r < count; ++r) {
    if (prefill.placement[r] != worker.profile.number) continue;
    if (!prefill.ranges[r].done) return true;
    const TokenRange& span = prefill.spans[r];
    const uint64_t end = span.first_token + span.token_count;
    for (auto pending = prefill.pending.upper_bound(span.first_token);
         pending != prefill.pending.end() && *pending <= end; ++pending) {
      if (prefill.waiting.count(*pending) == 0) return true;
    }
    for (uint64_t piece = NextPieceEnd(span.first_token); piece <= end;
         piece += kLatentPieceTokens) {
      if (LacksPiece(prefill, piece)) return true;
    }
    const bool last = r + 1 == count;
    if (last && prefill.logits_pending) return true;
    // A worker that has drained has had all its hand-overs acknowledged.
    if (!last && !worker.drained && !prefill.ranges[r + 1].done) return true;
  }
  return false;
}

void Scheduler::LoseWorker(WorkerNumber number, const std::string& reason) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  const WorkerState lost = std::move(found->second);
  workers_.erase(found);
  std::vector<PromptNumber> affected;
  for (const auto& [prompt_number, prompt] : prompts_) {
    const bool retrying =
        prompt.phase == PromptPhase::kRetrying && prompt.prefill != nullptr &&
        std::count(prompt.prefill->placement.begin(), prompt.prefill->placement.end(), number) > 0;
    const bool running = prompt.phase == PromptPhase::kRunning && prompt.prefill != nullptr &&
                         Needs(*prompt.prefill, lost);
    if (retrying || running) affected.push_back(prompt_number);
  }
  last_loss_ = absl::StrCat("worker ", lost.profile.name, " was lost: ", reason);
  const std::string message = last_loss_;
  for (PromptNumber prompt_number : affected) {
    PromptState& prompt = prompts_.at(prompt_number);
    if (prompt.phase == PromptPhase::kRetrying) {
      BeginAttempt(prompt);  // the loss that it waited for to be noticed
    } else {
      RetryAttempt(prompt, message, 0.0);
    }
  }
  for (PromptNumber prompt_number : lost.single_work) {
    LoseSingleWork(prompts_.at(prompt_number), message);
  }
  Settle();
}

void Scheduler::DrainWorker(WorkerNumber number) {
  const auto found = workers_.find(number);
  if (found == workers_.end() || found->second.draining) return;
  found->second.draining = true;
  for (auto& [prompt_number, prompt] : prompts_) {
    if (prompt.phase == PromptPhase::kRunning && prompt.prefill != nullptr) {
      MoveRanges(prompt, number);
    }
  }
  Settle();
}

// Places ranges of a draining worker that nobody was told about on others, if there are any. The
// range after the last given one has been named as its next, so it stays.
void Scheduler::MoveRanges(PromptState& prompt, WorkerNumber from) {
  PrefillState& prefill = *prompt.prefill;
  const size_t first = prefill.next_range == 0 ? 0 : prefill.next_range + 1;
  uint64_t longest = 0;
  for (size_t r = first; r < prefill.spans.size(); ++r) {
    longest = std::max(longest, prefill.spans[r].token_count);
  }
  std::vector<WorkerNumber> others;
  for (WorkerNumber other : UsableWorkers(prompt)) {
    if (workers_.at(other).profile.range_tokens_max >= longest) others.push_back(other);
  }
  if (others.empty()) return;
  for (size_t r = first; r < prefill.spans.size(); ++r) {
    if (prefill.placement[r] == from) prefill.placement[r] = others[r % others.size()];
  }
  prefill.placed.insert(prefill.placement.begin(), prefill.placement.end());
}

// A draining worker is told so once it has been given everything that was promised to it: it takes
// nothing after that.
void Scheduler::SendDrainOrders() {
  for (auto& [number, worker] : workers_) {
    if (!worker.draining || worker.drain_sent) continue;
    bool promised = false;
    for (const auto& [prompt_number, prompt] : prompts_) {
      if (prompt.phase != PromptPhase::kRunning || prompt.prefill == nullptr) continue;
      const PrefillState& prefill = *prompt.prefill;
      promised |= std::find(prefill.placement.begin() + prefill.next_range, prefill.placement.end(),
                            number) != prefill.placement.end();
    }
    if (promised) continue;
    worker.drain_sent = true;
    output_->Send(number, DrainOrder{});
  }
}

void Scheduler::OnDrained(WorkerNumber number) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  found->second.heard_s = clock_();
  // Of its own accord it cannot be drained: what it still owes would never come.
  if (found->second.drain_sent) found->second.drained = true;
}

void Scheduler::OnHeartbeat(WorkerNumber number, uint64_t save_queue_bytes, double stall_s) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  WorkerState& worker = found->second;
  worker.heard_s = clock_();
  // A range may wait for room in a queue that moves.
  if (worker.save_queue_bytes != save_queue_bytes) worker.progressed_s = clock_();
  worker.save_queue_bytes = save_queue_bytes;
  if (stall_s <= 0 || worker.queue.empty()) return;
  const auto prompt = prompts_.find(worker.queue.front().attempt.prompt);
  if (prompt != prompts_.end()) prompt->second.timings.stall_s += stall_s;
}

std::vector<ServedModel> Scheduler::Models() const {
  std::vector<ServedModel> models;
  for (const auto& [number, worker] : workers_) {
    const ServedModel& model = worker.profile.model;
    const bool known = std::any_of(models.begin(), models.end(), [&](const ServedModel& other) {
      return other.fingerprint == model.fingerprint && other.numerics == model.numerics;
    });
    if (!known) models.push_back(model);
  }
  return models;
}

std::vector<AttachedWorker> Scheduler::Workers() const {
  std::vector<AttachedWorker> attached;
  for (const auto& [number, worker] : workers_) {
    AttachedWorker entry;
    entry.name = worker.profile.name;
    entry.device = worker.profile.device;
    entry.draining = worker.draining;
    entry.ranges_queued = static_cast<uint32_t>(worker.queue.size());
    entry.decodes_running = static_cast<uint32_t>(worker.single_work.size());
    entry.fingerprint = worker.profile.model.fingerprint;
    attached.push_back(std::move(entry));
  }
  return attached;
}

uint32_t Scheduler::PromptsRunning() const {
  return static_cast<uint32_t>(prompts_.size() - queue_.size());
}

}  // namespace deltafill::coordinator
