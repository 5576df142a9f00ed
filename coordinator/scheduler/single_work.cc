// Decodes and exports: each runs on one worker from end to end.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/latent_parts.h"
#include "coordinator/scheduler/latents.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {
namespace {

// What a worker put, completed by the whole pieces of the state that it started from.
std::vector<PartReceipt> AfterStart(const StartState& start,
                                    const std::vector<PartReceipt>& parts) {
  return WithPieces(parts, AsReceipts(WholePieces(start.parts, start.boundary)));
}

}  // namespace

bool Scheduler::StartSingleWork(PromptState& prompt) {
  std::optional<std::pair<std::pair<size_t, double>, WorkerNumber>> least;
  for (WorkerNumber number : UsableWorkers(prompt)) {
    const WorkerState& worker = workers_.at(number);
    if (!HasLatentRoom(worker, LatentTokens(prompt))) continue;
    if (worker.single_work.size() >= worker.profile.decode_batch_max) continue;
    double queued_s = 0.0;
    for (const GivenRange& given : worker.queue) queued_s += given.predicted_s;
    const std::pair<std::pair<size_t, double>, WorkerNumber> load{
        {worker.single_work.size(), queued_s}, number};
    if (!least || load < *least) least = load;
  }
  if (!least) return false;
  SingleWorkState& single = *prompt.single;
  single.worker = least->second;
  prompt.phase = PromptPhase::kRunning;
  prompt.wait_until_s = -1.0;
  if (prompt.started_s < 0) prompt.started_s = clock_();
  const AttemptRef attempt{prompt.number, ++prompt.attempt};
  workers_.at(single.worker).single_work.insert(prompt.number);
  if (single.decode != nullptr) {
    output_->Send(single.worker, DecodeOrder{attempt, single.decode});
  } else {
    output_->Send(single.worker, ExportOrder{attempt, single.exported});
  }
  return true;
}

// Its worker is gone already. What has produced nothing yet is tried again, before anything newer.
void Scheduler::LoseSingleWork(PromptState& prompt, const std::string& reason) {
  const bool started = prompt.single->tokens_reported > 0;
  if (started || ++prompt.failures > options_.failures_max) {
    prompt.last_done_s = clock_();
    return Finish(prompt, absl::UnavailableError(reason), "");
  }
  prompt.phase = PromptPhase::kQueued;
  queue_.push_front(prompt.number);
}

PromptState* Scheduler::FindSingle(WorkerNumber number, const AttemptRef& attempt) {
  const auto worker = workers_.find(number);
  if (worker == workers_.end()) return nullptr;
  worker->second.heard_s = clock_();
  PromptState* prompt = FindCurrent(attempt);
  if (prompt == nullptr || prompt->single == nullptr) return nullptr;
  return prompt->single->worker == number ? prompt : nullptr;
}

void Scheduler::OnDecodeReady(WorkerNumber worker, const AttemptRef& attempt) {
  PromptState* prompt = FindSingle(worker, attempt);
  if (prompt == nullptr || std::exchange(prompt->single->ready_reported, true)) return;
  workers_.at(worker).generated_s = clock_();
  prompt->observer->OnDecodeReady();
}

void Scheduler::OnDecodeToken(WorkerNumber worker, const AttemptRef& attempt, uint32_t id) {
  PromptState* prompt = FindSingle(worker, attempt);
  if (prompt == nullptr) return;
  ++prompt->single->tokens_reported;
  workers_.at(worker).generated_s = clock_();
  prompt->observer->OnDecodeToken(id);
}

void Scheduler::OnDecodeFinished(WorkerNumber worker, const AttemptRef& attempt,
                                 const std::string& finish_reason, const StoredBoundary& saved) {
  PromptState* prompt = FindSingle(worker, attempt);
  if (prompt == nullptr || prompt->single->decode == nullptr) return Release(saved.parts);
  workers_.at(worker).single_work.erase(prompt->number);
  prompt->last_done_s = clock_();
  if (!saved.parts.empty()) {
    prompt->observer->OnBoundaryStored(
        {saved.boundary, AfterStart(prompt->single->decode->start, saved.parts)});
  }
  Finish(*prompt, absl::OkStatus(), finish_reason);
  Settle();
}

void Scheduler::OnExportReady(WorkerNumber worker, const AttemptRef& attempt,
                              const std::vector<PartReceipt>& parts) {
  PromptState* prompt = FindSingle(worker, attempt);
  if (prompt == nullptr || prompt->single->exported == nullptr) return Release(parts);
  workers_.at(worker).single_work.erase(prompt->number);
  prompt->last_done_s = clock_();
  prompt->observer->OnExported(AfterStart(prompt->single->exported->start, parts));
  Finish(*prompt, absl::OkStatus(), "");
  Settle();
}

}  // namespace deltafill::coordinator
