// Boundaries that have been stored: requested ones go to the caller, recovery ones are kept until a
// deeper one replaces them or the prompt ends.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "coordinator/latent_parts.h"
#include "coordinator/scheduler/latents.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

void Scheduler::Release(const std::vector<PartReceipt>& parts) {
  const std::vector<uint64_t> ids = LeaseIds(parts);
  if (!ids.empty()) output_->ReleaseLeases(ids);
}

void Scheduler::OnBoundaryStored(WorkerNumber number, const AttemptRef& attempt,
                                 const StoredBoundary& stored, bool skipped) {
  const auto worker = workers_.find(number);
  if (worker != workers_.end()) worker->second.heard_s = worker->second.progressed_s = clock_();
  const auto found = prompts_.find(attempt.prompt);
  if (found == prompts_.end() || found->second.prefill == nullptr) return Release(stored.parts);
  PromptState& prompt = found->second;
  PrefillState& prefill = *prompt.prefill;
  const uint64_t boundary = stored.boundary;
  if (skipped || stored.parts.empty()) {
    // Only recovery boundaries may be skipped; the next one follows after the interval.
    if (prefill.pending.count(boundary) == 0 || FindCurrent(attempt) == nullptr) return;
    AbortAttempt(prompt);
    Finish(prompt, absl::InternalError(absl::StrCat("boundary ", boundary, " was not stored")), "");
    return Settle();
  }
  const auto& requested = prefill.work.boundaries;
  const bool again = prefill.kept.count(boundary) > 0 || prefill.waiting.count(boundary) > 0 ||
                     (std::binary_search(requested.begin(), requested.end(), boundary) &&
                      prefill.pending.count(boundary) == 0);
  const bool usable = boundary % kBlockTokenCount == 0 && boundary > prefill.work.start.boundary &&
                      (boundary < prefill.work.end() || prefill.pending.count(boundary));
  if (again || !usable) return Release(stored.parts);
  if (!HasPieces(prefill, boundary)) {
    prefill.waiting[boundary] = stored;
    return;
  }
  if (TakeBoundary(prompt, stored)) Settle();
}

// All parts of the boundary are stored, those in `own` by the worker that had it in its range. True
// if the prompt is finished with that.
bool Scheduler::TakeBoundary(PromptState& prompt, const StoredBoundary& own) {
  PrefillState& prefill = *prompt.prefill;
  StoredBoundary stored = own;
  if (prefill.has_latents)
    stored.parts = WithPieces(own.parts, PiecesBefore(prefill, own.boundary));
  if (prefill.pending.erase(stored.boundary) == 0) {
    KeepRecovery(prefill, stored);
    return false;
  }
  prefill.kept[stored.boundary] = {AsRefs(stored.parts), false, {}, 0.0};
  prompt.observer->OnBoundaryStored(stored);
  PruneRecovery(prefill);
  return FinishIfComplete(prompt);
}

void Scheduler::KeepRecovery(PrefillState& prefill, const StoredBoundary& stored) {
  prefill.kept[stored.boundary] = {AsRefs(stored.parts), true, LeaseIds(stored.parts), clock_()};
  PruneRecovery(prefill);
}

// The deepest kept boundary before everything that is still missing is what a new attempt would
// start from: recovery boundaries before it have had their time. So have those after it, but for
// the deepest, which is where to start from once the missing ones are stored.
void Scheduler::PruneRecovery(PrefillState& prefill) {
  const uint64_t needed = prefill.pending.empty() ? prefill.work.end() : *prefill.pending.begin();
  const auto after = prefill.kept.lower_bound(needed);
  const uint64_t best = after == prefill.kept.begin() ? 0 : std::prev(after)->first;
  const uint64_t deepest = prefill.kept.empty() ? 0 : prefill.kept.rbegin()->first;
  // What the current attempt starts from may still be being read; its latents by every worker.
  const bool read = prefill.ranges_done == 0 || prefill.has_latents;
  const uint64_t start = read && prefill.started_from_kept ? prefill.start_boundary : 0;
  for (auto entry = prefill.kept.begin(); entry != prefill.kept.end();) {
    const uint64_t boundary = entry->first;
    const bool keep =
        !entry->second.recovery || boundary == best || boundary == deepest || boundary == start;
    if (!keep) output_->ReleaseLeases(entry->second.lease_ids);
    entry = keep ? std::next(entry) : prefill.kept.erase(entry);
  }
}

void Scheduler::ReleaseRecovery(const PrefillState& prefill) {
  for (const auto& [boundary, kept] : prefill.kept) {
    if (kept.recovery) output_->ReleaseLeases(kept.lease_ids);
  }
}

}  // namespace deltafill::coordinator
