// What happens because time passes.
#include <cmath>

#include "absl/strings/str_format.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

void Scheduler::Tick() {
  const double now_s = clock_();

  std::vector<WorkerNumber> silent;
  for (const auto& [number, worker] : workers_) {
    if (now_s - worker.heard_s > options_.heartbeat_timeout_s) silent.push_back(number);
  }
  for (WorkerNumber number : silent) {
    const std::string reason =
        absl::StrFormat("not heard of for %.1f s", options_.heartbeat_timeout_s);
    output_->CloseWorker(number, absl::DeadlineExceededError(reason));
    LoseWorker(number, reason);
  }

  std::vector<PromptNumber> due;
  for (const auto& [number, prompt] : prompts_) {
    if (prompt.wait_until_s >= 0 && now_s >= prompt.wait_until_s) due.push_back(number);
  }
  for (PromptNumber number : due) {
    PromptState& prompt = prompts_.at(number);
    if (prompt.phase == PromptPhase::kRetrying) {
      BeginAttempt(prompt);
    } else {
      Finish(prompt,
             absl::UnavailableError(absl::StrFormat(
                 "no worker of the model has attached for %.1f s", options_.worker_grace_s)),
             "");
    }
  }

  for (auto& [number, prompt] : prompts_) {
    if (prompt.prefill == nullptr) continue;
    RenewLatents(*prompt.prefill);
    for (auto& [boundary, kept] : prompt.prefill->kept) {
      if (!kept.recovery || now_s - kept.renewed_s < options_.lease_renewal_s) continue;
      kept.renewed_s = now_s;
      output_->RenewLeases(kept.lease_ids);
    }
  }
  if (!due.empty()) Settle();
}

}  // namespace deltafill::coordinator
