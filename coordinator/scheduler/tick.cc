// What happens because time passes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

// Of all ranges that were given and are not done, one that waits for no other: it is at the front
// of its worker, and all before it in its prompt are done (dispatch.cc). It must get on.
bool Scheduler::RangeIsStuck(const WorkerState& worker) const {
  if (worker.queue.empty()) return false;
  const GivenRange& front = worker.queue.front();
  const auto found = prompts_.find(front.attempt.prompt);
  if (found == prompts_.end() || found->second.phase != PromptPhase::kRunning) return false;
  const PrefillState& prefill = *found->second.prefill;
  const double since_s = std::max(worker.progressed_s, prefill.progressed_s);
  if (clock_() - since_s <= options_.progress_timeout_s) return false;
  return std::all_of(prefill.ranges.begin(), prefill.ranges.begin() + front.range,
                     [](const RangeState& range) { return range.done; });
}

// A decoding that generates steps with all others of its worker, and waits for nobody. What loads,
// prefills or saves is not judged: it reports nothing meanwhile, and the store has deadlines.
bool Scheduler::GeneratingIsStuck(const WorkerState& worker) const {
  if (clock_() - worker.generated_s <= options_.progress_timeout_s) return false;
  return std::any_of(
      worker.single_work.begin(), worker.single_work.end(), [&](PromptNumber number) {
        const SingleWorkState& single = *prompts_.at(number).single;
        return single.decode != nullptr && single.ready_reported && !single.decode->save_state &&
               single.tokens_reported < single.decode->max_tokens;
      });
}

// "" if it is not.
std::string Scheduler::WhyStuck(const WorkerState& worker) const {
  if (options_.progress_timeout_s <= 0) return "";
  const char* what = nullptr;
  if (RangeIsStuck(worker)) {
    what = "a range that waits for no other worker";
  } else if (GeneratingIsStuck(worker)) {
    what = "a decoding that had begun to generate";
  }
  if (what == nullptr) return "";
  return absl::StrFormat("it is stuck: %s got no further for %.1f s", what,
                         options_.progress_timeout_s);
}

void Scheduler::GiveUpSilentAndStuck() {
  std::vector<std::pair<WorkerNumber, std::string>> given_up;
  for (const auto& [number, worker] : workers_) {
    if (clock_() - worker.heard_s > options_.heartbeat_timeout_s) {
      given_up.emplace_back(
          number, absl::StrFormat("not heard of for %.1f s", options_.heartbeat_timeout_s));
    } else if (std::string why = WhyStuck(worker); !why.empty()) {
      given_up.emplace_back(number, std::move(why));
    }
  }
  for (const auto& [number, reason] : given_up) {
    output_->CloseWorker(number, absl::DeadlineExceededError(reason));
    LoseWorker(number, reason);
  }
}

void Scheduler::Tick() {
  const double now_s = clock_();

  GiveUpSilentAndStuck();

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
