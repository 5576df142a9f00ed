#include "coordinator/front/prompt_session.h"

#include <utility>

#include "coordinator/front/limits.h"
#include "coordinator/front/part_leases.h"

namespace deltafill::coordinator {

bool PromptSession::Next(std::chrono::milliseconds timeout, PromptEvent* event) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return false;
  *event = std::move(events_.front());
  events_.pop_front();
  return true;
}

void PromptSession::Push(PromptEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

void PromptSession::OnPlanned(const PlanSummary& plan, uint32_t attempt) {
  Push(PlannedEvent{plan, attempt});
}

void PromptSession::OnProgress(uint64_t tokens_done, uint32_t attempt) {
  {
    const std::lock_guard lock(mutex_);
    // Only the newest count is of use.
    if (!events_.empty() && std::holds_alternative<ProgressEvent>(events_.back())) {
      events_.back() = ProgressEvent{tokens_done, attempt};
      return;
    }
  }
  Push(ProgressEvent{tokens_done, attempt});
}

void PromptSession::OnBoundaryStored(const StoredBoundary& boundary) { Push(boundary); }

void PromptSession::OnLogits(const std::string& values) {
  {
    const std::lock_guard lock(mutex_);
    // Behind a plan that still waits: what is accepted is told first.
    auto place = events_.begin();
    while (place != events_.end() && std::holds_alternative<PlannedEvent>(*place)) ++place;
    events_.insert(place, LogitsEvent{values});
  }
  arrived_.notify_one();
}

void PromptSession::OnDecodeReady() { Push(DecodeReadyEvent{}); }

void PromptSession::OnDecodeToken(uint32_t id) { Push(DecodeTokenEvent{id}); }

void PromptSession::OnExported(const std::vector<PartReceipt>& parts) {
  Push(ExportedEvent{parts});
}

void PromptSession::OnSharedLeases(const std::vector<uint64_t>& lease_ids) {
  Push(SharedLeasesEvent{lease_ids});
}

void PromptSession::OnFinished(const absl::Status& status, const WorkTimings& timings,
                               const std::string& finish_reason) {
  Push(FinishedEvent{status, timings, finish_reason});
}

namespace {

void ReturnLeases(StateStore& store, const PromptEvent& event) {
  if (const auto* stored = std::get_if<StoredBoundary>(&event)) ReleaseParts(store, stored->parts);
  if (const auto* exported = std::get_if<ExportedEvent>(&event))
    ReleaseParts(store, exported->parts);
}

}  // namespace

absl::Status DrainPrompt(PromptEngine& engine, StateStore& store, PromptNumber prompt,
                         PromptSession& session, const std::function<bool()>& cancelled,
                         const std::function<absl::Status(PromptEvent&)>& handle) {
  absl::Status failure;
  bool cancel_sent = false;
  auto give_up = std::chrono::steady_clock::time_point::max();
  while (std::chrono::steady_clock::now() < give_up) {
    if (!cancel_sent && (!failure.ok() || cancelled())) {
      engine.Cancel(prompt);
      cancel_sent = true;
      give_up = std::chrono::steady_clock::now() + kCancelWaitMax;
    }
    PromptEvent event;
    if (!session.Next(kCancelPoll, &event)) continue;
    const auto* finished = std::get_if<FinishedEvent>(&event);
    const absl::Status end = finished != nullptr ? finished->status : absl::OkStatus();
    const bool last = finished != nullptr;
    if (const auto* shared = std::get_if<SharedLeasesEvent>(&event)) {
      ReleaseLeases(store, shared->lease_ids);
    } else if (failure.ok()) {
      failure = handle(event);
    } else {
      ReturnLeases(store, event);
    }
    if (!last) continue;
    if (!failure.ok()) return failure;
    return end;
  }
  if (!failure.ok()) return failure;
  return absl::CancelledError("the call was cancelled");
}

}  // namespace deltafill::coordinator
