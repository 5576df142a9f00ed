// Admission: what is accepted, what waits, what starts.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/scheduler/latents.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {
namespace {

absl::Status CheckStart(const StartState& start) {
  if (start.boundary % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("start.boundary: ", start.boundary, " is not a multiple of 64"));
  }
  if (start.boundary > 0 && start.parts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("start.parts: none for boundary ", start.boundary));
  }
  return absl::OkStatus();
}

absl::Status CheckPrefill(const PrefillWork& work) {
  if (work.tokens == nullptr || work.tokens->empty()) {
    return absl::InvalidArgumentError("tokens: the prompt is empty");
  }
  if (absl::Status status = CheckStart(work.start); !status.ok()) return status;
  const uint64_t end = work.end();
  if (work.tokens_begin > work.start.boundary) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens_begin: ", work.tokens_begin, " is after start.boundary ", work.start.boundary));
  }
  if (work.start.boundary >= end) {
    return absl::InvalidArgumentError(absl::StrCat("start.boundary: ", work.start.boundary,
                                                   " is not before the prompt's end at ", end));
  }
  uint64_t previous = work.start.boundary;
  for (uint64_t boundary : work.boundaries) {
    if (boundary % kBlockTokenCount != 0 || boundary <= previous || boundary > end) {
      return absl::InvalidArgumentError(absl::StrCat("boundaries: ", boundary,
                                                     " must be a multiple of 64, after ", previous,
                                                     " and at most ", end));
    }
    previous = boundary;
  }
  return absl::OkStatus();
}

template <typename Work>
PromptState NewPrompt(const Work& work, std::shared_ptr<PromptObserver> observer) {
  PromptState prompt;
  prompt.observer = std::move(observer);
  prompt.fingerprint = work.fingerprint;
  prompt.numerics = work.numerics;
  return prompt;
}

}  // namespace

absl::Status Scheduler::Admit(PromptState* prompt) const {
  const WorkerState* serving = nullptr;
  uint64_t latent_tokens_max = 0;
  for (const auto& [number, worker] : workers_) {
    if (worker.draining || worker.profile.model.fingerprint != prompt->fingerprint ||
        worker.profile.model.numerics != prompt->numerics) {
      continue;
    }
    serving = &worker;
    latent_tokens_max = std::max(latent_tokens_max, worker.profile.latent_tokens_max);
  }
  if (serving == nullptr) {
    return absl::UnavailableError(absl::StrCat("no worker serves model ",
                                               prompt->fingerprint.ToHex().substr(0, 12),
                                               " with numerics ", prompt->numerics));
  }
  prompt->has_latents = !serving->profile.model.latents.layers.empty();
  if (const uint64_t tokens = LatentTokens(*prompt); tokens > latent_tokens_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("latents of ", tokens, " tokens: no worker has room for more than those of ",
                     latent_tokens_max, " (--latent-budget)"));
  }
  if (queue_.size() >= options_.prompts_queued_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("queue full: ", options_.prompts_queued_max, " prompts wait"));
  }
  return absl::OkStatus();
}

PromptNumber Scheduler::Enqueue(PromptState prompt) {
  prompt.number = ++prompt_last_;
  prompt.submitted_s = clock_();
  const PromptNumber number = prompt.number;
  prompts_.emplace(number, std::move(prompt));
  queue_.push_back(number);
  Settle();
  return number;
}

absl::StatusOr<PromptNumber> Scheduler::SubmitPrefill(PrefillWork work,
                                                      std::shared_ptr<PromptObserver> observer) {
  if (absl::Status status = CheckPrefill(work); !status.ok()) return status;
  PromptState prompt = NewPrompt(work, std::move(observer));
  prompt.prefill = std::make_unique<PrefillState>();
  prompt.prefill->pending.insert(work.boundaries.begin(), work.boundaries.end());
  prompt.prefill->logits_pending = work.last_logits;
  prompt.prefill->work = std::move(work);
  if (absl::Status status = Admit(&prompt); !status.ok()) return status;
  return Enqueue(std::move(prompt));
}

absl::StatusOr<PromptNumber> Scheduler::SubmitDecode(DecodeWork work,
                                                     std::shared_ptr<PromptObserver> observer) {
  if (work.tokens.empty()) return absl::InvalidArgumentError("tokens: none to decode from");
  if (work.max_tokens == 0) return absl::InvalidArgumentError("max_tokens: must be at least 1");
  if (absl::Status status = CheckStart(work.start); !status.ok()) return status;
  PromptState prompt = NewPrompt(work, std::move(observer));
  prompt.single = std::make_unique<SingleWorkState>();
  prompt.single->decode = std::make_shared<const DecodeWork>(std::move(work));
  if (absl::Status status = Admit(&prompt); !status.ok()) return status;
  return Enqueue(std::move(prompt));
}

absl::StatusOr<PromptNumber> Scheduler::SubmitExport(ExportWork work,
                                                     std::shared_ptr<PromptObserver> observer) {
  if (work.tokens.empty()) return absl::InvalidArgumentError("tokens: none to export the end of");
  if (absl::Status status = CheckStart(work.start); !status.ok()) return status;
  PromptState prompt = NewPrompt(work, std::move(observer));
  prompt.single = std::make_unique<SingleWorkState>();
  prompt.single->exported = std::make_shared<const ExportWork>(std::move(work));
  if (absl::Status status = Admit(&prompt); !status.ok()) return status;
  return Enqueue(std::move(prompt));
}

void Scheduler::Cancel(PromptNumber number) {
  const auto found = prompts_.find(number);
  if (found == prompts_.end()) return;
  AbortAttempt(found->second);
  Finish(found->second, absl::CancelledError("cancelled"), "");
  Settle();
}

void Scheduler::FinishAll(const absl::Status& status) {
  while (!prompts_.empty()) {
    PromptState& prompt = prompts_.begin()->second;
    AbortAttempt(prompt);
    Finish(prompt, status, "");
  }
}

bool Scheduler::TryStart(PromptState& prompt) {
  if (prompt.single != nullptr) return StartSingleWork(prompt);
  if (turns_.size() >= options_.prompts_running_max) return false;
  if (UsableWorkers(prompt).empty() || ShortOfRoom(prompt)) return false;
  turns_.push_back(prompt.number);
  BeginAttempt(prompt);
  return true;
}

// Oldest first, but one that cannot start yet holds up nobody: a decode behind prefills, a prompt
// of a model whose workers are all gone. Only what waits for room for latents goes before later
// prompts of the model, which could take it away for ever.
void Scheduler::StartQueued() {
  const std::deque<PromptNumber> waiting = std::exchange(queue_, {});
  std::set<std::pair<std::string, std::string>> short_of_room;  // models
  for (PromptNumber number : waiting) {
    PromptState& prompt = prompts_.at(number);
    if (UsableWorkers(prompt).empty()) {
      if (prompt.wait_until_s < 0) prompt.wait_until_s = clock_() + options_.worker_grace_s;
    } else {
      prompt.wait_until_s = -1.0;
    }
    const std::pair<std::string, std::string> model{prompt.fingerprint.view(), prompt.numerics};
    if ((prompt.has_latents && short_of_room.count(model) > 0) || !TryStart(prompt)) {
      queue_.push_back(number);
      if (ShortOfRoom(prompt)) short_of_room.insert(model);
    }
  }
}

void Scheduler::Settle() {
  StartQueued();
  Dispatch();
  SendDrainOrders();
}

}  // namespace deltafill::coordinator
