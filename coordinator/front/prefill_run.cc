#include "coordinator/front/prefill_run.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/log.h"
#include "coordinator/front/part_leases.h"
#include "coordinator/latent_parts.h"

namespace deltafill::coordinator {
namespace {

std::vector<uint64_t> WantedBoundaries(const PrefillAsk& ask, uint64_t final_boundary,
                                       uint64_t base) {
  std::set<uint64_t> wanted;
  for (const RequestedBoundary& requested : ask.requested) wanted.insert(requested.boundary);
  if (final_boundary > base) wanted.insert(final_boundary);
  return {wanted.begin(), wanted.end()};
}

}  // namespace

PrefillRun::PrefillRun(StateStore& store, PromptEngine& engine, const KeyedPrompt& prompt,
                       const PrefillAsk& ask, PrefillListener& listener,
                       const std::function<bool()>& cancelled)
    : store_(store),
      engine_(engine),
      prompt_(prompt),
      ask_(ask),
      listener_(listener),
      cancelled_(cancelled),
      final_boundary_(FinalBoundary(prompt.TokenCount())),
      wanted_(WantedBoundaries(ask, final_boundary_, prompt.base)),
      rate_(0, prompt.TokenCount(), ProgressRate::Clock::now()),
      computed_at_(ProgressRate::Clock::now()) {}

absl::StatusOr<PrefillOutcome> PrefillRun::Run() {
  absl::Status status;
  for (int submission = 1; submission <= kSubmissionsMax; ++submission) {
    const auto lookup_start = ProgressRate::Clock::now();
    absl::StatusOr<PrefillStart> start = LookUp(submission == 1);
    outcome_.lookup_s += SecondsSince(lookup_start);
    if (!start.ok()) return start.status();
    start_ = *std::move(start);
    for (uint64_t boundary : start_.missing) present_.erase(boundary);  // found damaged since
    for (const auto& [boundary, manifest] : start_.stored) {
      if (!present_.contains(boundary)) present_[boundary] = FromManifest(manifest);
    }
    status = Submit();
    if (Abandoned() || !IsStartLost(store_, prompt_, start_.start, status)) break;
    attempts_before_ = outcome_.attempts;
  }
  if (!listening_.ok()) return listening_;
  if (!status.ok()) return status;
  if (status = CheckComplete(); !status.ok()) return status;
  Conclude();
  return outcome_;
}

// Whoever computes from a state verifies every byte of it before anything is sent; reading it here
// as well would only delay that. What nobody would read is verified here, and so is everything once
// a state turned out damaged.
absl::StatusOr<PrefillStart> PrefillRun::LookUp(bool first) {
  StartAsk ask{.no_resume = ask_.no_resume && first, .verify = false};
  if (first) {
    absl::StatusOr<PrefillStart> start = PlanStart(store_, prompt_, wanted_, ask, engine_.Models());
    if (!start.ok() || IsWorkFor(*start)) return start;
  }
  ask.verify = true;
  return PlanStart(store_, prompt_, wanted_, ask, engine_.Models());
}

bool PrefillRun::IsWorkFor(const PrefillStart& start) const {
  return !start.missing.empty() || (ask_.return_logits && !logits_sent_);
}

void PrefillRun::Conclude() {
  if (final_boundary_ > prompt_.base) {
    outcome_.final_state = present_[final_boundary_];
  } else {
    outcome_.final_state.state = prompt_.base_key;
    outcome_.final_state.boundary = prompt_.base;
    outcome_.final_state.parts = start_.start.parts;
    outcome_.final_state.bytes = PartBytes(start_.start.parts);
  }
  outcome_.cached_tokens = start_.start.boundary;
  outcome_.miss_reason = start_.miss_reason;
}

absl::Status PrefillRun::Submit() {
  const auto now = ProgressRate::Clock::now();
  rate_ = ProgressRate(start_.start.boundary, prompt_.TokenCount(), now);
  computed_at_ = now;
  if (!IsWorkFor(start_)) {
    PlanSummary nothing;
    nothing.schedule = "none";
    nothing.why = "every state asked for is stored";
    Accept(nothing);
    ReportStored();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<PartReceipt>> shared = LeaseShared(store_, start_.start);
  if (!shared.ok()) return shared.status();
  PrefillWork work = MakeWork();
  work.start_leases = LeaseIds(*shared);
  auto session = std::make_shared<PromptSession>();
  absl::StatusOr<PromptNumber> number = engine_.SubmitPrefill(std::move(work), session);
  if (!number.ok()) {
    ReleaseParts(store_, *shared);
    return number.status();
  }
  return DrainPrompt(
      engine_, store_, *number, *session, [this] { return Abandoned(); },
      [this](PromptEvent& event) { return Handle(event); });
}

PrefillWork PrefillRun::MakeWork() const {
  PrefillWork work;
  work.fingerprint = prompt_.model.fingerprint;
  work.numerics = prompt_.model.numerics;
  work.tenant = prompt_.tenant;
  work.start = start_.start;
  work.tokens_begin = start_.start.boundary;
  work.tokens = std::make_shared<const std::vector<uint32_t>>(
      prompt_.TokensBetween(work.tokens_begin, prompt_.TokenCount()));
  work.boundaries = start_.missing;
  work.last_logits = ask_.return_logits && !logits_sent_;
  work.any_exactness = ask_.any_exactness;
  work.schedule = ask_.schedule;
  return work;
}

absl::Status PrefillRun::Handle(PromptEvent& event) {
  if (const auto* stored = std::get_if<StoredBoundary>(&event)) return HandleStored(*stored);
  if (const auto* planned = std::get_if<PlannedEvent>(&event)) {
    outcome_.attempts = attempts_before_ + planned->attempt;
    Accept(planned->plan);
    ReportStored();
  }
  if (const auto* progress = std::get_if<ProgressEvent>(&event)) HandleProgress(*progress);
  if (const auto* logits = std::get_if<LogitsEvent>(&event)) HandleLogits(*logits);
  if (const auto* finished = std::get_if<FinishedEvent>(&event)) HandleFinished(*finished);
  return absl::OkStatus();
}

void PrefillRun::Accept(const PlanSummary& plan) {
  outcome_.schedule = plan.schedule;
  if (accepted_ || !listening_.ok()) return;
  accepted_ = true;
  listening_ = listener_.OnAccepted(start_.start.boundary, start_.miss_reason, plan);
}

void PrefillRun::HandleProgress(const ProgressEvent& progress) {
  const auto now = ProgressRate::Clock::now();
  if (progress.tokens_done < prompt_.TokenCount()) computed_at_ = now;
  const std::optional<ProgressReport> report = rate_.Update(progress.tokens_done, now);
  if (!report.has_value() || !listening_.ok()) return;
  listening_ = listener_.OnProgress(*report, attempts_before_ + progress.attempt);
}

void PrefillRun::HandleLogits(const LogitsEvent& logits) {
  if (logits_sent_ || !ask_.return_logits || !listening_.ok()) return;
  logits_sent_ = true;
  listening_ = listener_.OnLogits(logits.values);
}

absl::Status PrefillRun::HandleStored(const StoredBoundary& stored) {
  if (!std::binary_search(start_.missing.begin(), start_.missing.end(), stored.boundary)) {
    LogWarning(absl::StrCat("a state at token ", stored.boundary, " that nobody asked for"));
    ReleaseParts(store_, stored.parts);
    return absl::OkStatus();
  }
  absl::StatusOr<PublishedState> published =
      PublishBoundary(store_, prompt_, prompt_.KeyAt(stored.boundary), stored);
  if (!published.ok()) return published.status();
  present_[stored.boundary] = *published;
  Report(*published);
  return absl::OkStatus();
}

void PrefillRun::HandleFinished(const FinishedEvent& finished) {
  outcome_.work.queue_s += finished.timings.queue_s;
  outcome_.work.compute_s += finished.timings.compute_s;
  outcome_.work.stall_s += finished.timings.stall_s;
  outcome_.work.restore_s += finished.timings.restore_s;
  outcome_.work.tokens_computed += finished.timings.tokens_computed;
  outcome_.save_s = SecondsSince(computed_at_);
}

void PrefillRun::ReportStored() {
  for (const auto& [boundary, state] : present_) Report(state);
}

void PrefillRun::Report(const PublishedState& state) {
  const auto requested = std::lower_bound(
      ask_.requested.begin(), ask_.requested.end(), state.boundary,
      [](const RequestedBoundary& each, uint64_t boundary) { return each.boundary < boundary; });
  if (requested == ask_.requested.end() || requested->boundary != state.boundary) return;
  if (!listening_.ok() || !reported_.insert(state.boundary).second) return;
  listening_ = listener_.OnCheckpoint(*requested, state);
}

absl::Status PrefillRun::CheckComplete() const {
  for (uint64_t boundary : wanted_) {
    if (present_.contains(boundary)) continue;
    return absl::InternalError(absl::StrCat("the state at token ", boundary,
                                            " was not stored although the prompt is done"));
  }
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
