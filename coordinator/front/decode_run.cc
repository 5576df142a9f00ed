#include "coordinator/front/decode_run.h"

#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/part_leases.h"
#include "coordinator/front/prefill_run.h"
#include "coordinator/front/prefix_lookup.h"

namespace deltafill::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

class SilentListener final : public PrefillListener {
 public:
  absl::Status OnAccepted(uint64_t, const std::string&, const PlanSummary&) override { return {}; }
  absl::Status OnProgress(const ProgressReport&, uint32_t) override { return {}; }
  absl::Status OnCheckpoint(const RequestedBoundary&, const PublishedState&) override { return {}; }
  absl::Status OnLogits(const std::string&) override { return {}; }
};

}  // namespace

DecodeRun::DecodeRun(StateStore& store, PromptEngine& engine, const KeyedPrompt& prompt,
                     const DecodeAsk& ask, DecodeListener& listener,
                     const std::function<bool()>& cancelled)
    : store_(store),
      engine_(engine),
      prompt_(prompt),
      ask_(ask),
      listener_(listener),
      cancelled_(cancelled) {}

absl::StatusOr<DecodeOutcome> DecodeRun::Run() {
  absl::Status status;
  for (int submission = 1; submission <= kSubmissionsMax; ++submission) {
    if (status = ChooseStart(/*verify=*/submission > 1); !status.ok()) return status;
    if (prompt_.TokenCount() - start_.boundary > kDecodeDirectTokensMax) {
      if (status = PrefillFirst(); !status.ok()) return status;
    }
    status = Submit();
    // A token that was sent cannot be taken back, and a second try would send it again.
    if (!generated_.empty() || cancelled_()) break;
    if (!IsStartLost(store_, prompt_, start_, status)) break;
  }
  if (!listening_.ok()) status = listening_;
  if (status.ok() && ask_.save_state) status = Save();
  if (!status.ok()) {
    if (saved_.has_value()) ReleaseParts(store_, saved_->parts);
    return status;
  }
  outcome_.tokens_generated = generated_.size();
  return outcome_;
}

// The worker verifies every byte of the start before anything is sent; reading it here as well
// would only delay that. Once a state turned out lost, it tells what else is.
absl::Status DecodeRun::ChooseStart(bool verify) {
  const auto begin = Clock::now();
  absl::StatusOr<PrefixHit> hit = FindPrefix(store_, prompt_, verify, engine_.Models());
  outcome_.lookup_s += SecondsSince(begin);
  if (!hit.ok()) return hit.status();
  start_ = std::move(hit->start);
  // What this call itself prefilled before a second look-up was not cached.
  if (!prefilled_) {
    outcome_.cached_tokens = start_.boundary;
    miss_reason_ = hit->miss_reason;
  }
  return absl::OkStatus();
}

absl::Status DecodeRun::PrefillFirst() {
  SilentListener silent;
  const PrefillAsk ask;
  absl::StatusOr<PrefillOutcome> run =
      PrefillRun(store_, engine_, prompt_, ask, silent, cancelled_).Run();
  if (!run.ok()) return run.status();
  if (!prefilled_ && run->cached_tokens != start_.boundary) {
    // What was found at first is lost.
    outcome_.cached_tokens = run->cached_tokens;
    miss_reason_ = run->miss_reason;
  }
  prefilled_ = true;
  start_.boundary = run->final_state.boundary;
  start_.parts = run->final_state.parts;
  outcome_.lookup_s += run->lookup_s;
  outcome_.queue_s += run->work.queue_s;
  outcome_.prefill_s += run->work.compute_s;
  outcome_.tokens_computed += run->work.tokens_computed;
  return absl::OkStatus();
}

absl::Status DecodeRun::Submit() {
  DecodeWork work;
  work.fingerprint = prompt_.model.fingerprint;
  work.numerics = prompt_.model.numerics;
  work.tenant = prompt_.tenant;
  work.start = start_;
  work.tokens = prompt_.TokensBetween(start_.boundary, prompt_.TokenCount());
  work.max_tokens = ask_.max_tokens;
  work.temperature = ask_.temperature;
  work.top_p = ask_.top_p;
  work.seed = ask_.seed;
  work.stop_ids = ask_.stop_ids;
  work.save_state = ask_.save_state;
  if (ask_.save_state) {
    absl::StatusOr<std::vector<PartReceipt>> shared = LeaseShared(store_, start_);
    if (!shared.ok()) return shared.status();
    shared_.emplace(store_, *std::move(shared));  // until the saved state is published
  }
  auto session = std::make_shared<PromptSession>();
  absl::StatusOr<PromptNumber> number = engine_.SubmitDecode(std::move(work), session);
  if (!number.ok()) return number.status();
  return DrainPrompt(
      engine_, store_, *number, *session, [this] { return !listening_.ok() || cancelled_(); },
      [this](PromptEvent& event) { return Handle(event); });
}

void DecodeRun::Start() {
  if (started_ || !listening_.ok()) return;
  started_ = true;
  listening_ = listener_.OnStarted(outcome_.cached_tokens, miss_reason_);
}

absl::Status DecodeRun::Handle(PromptEvent& event) {
  if (std::holds_alternative<DecodeReadyEvent>(event)) Start();
  if (const auto* token = std::get_if<DecodeTokenEvent>(&event)) {
    Start();
    generated_.push_back(token->id);
    if (listening_.ok()) listening_ = listener_.OnToken(token->id);
  }
  if (auto* stored = std::get_if<StoredBoundary>(&event)) {
    if (saved_.has_value()) ReleaseParts(store_, saved_->parts);
    saved_ = std::move(*stored);
  }
  if (const auto* finished = std::get_if<FinishedEvent>(&event)) {
    outcome_.finish_reason = finished->finish_reason;
    outcome_.queue_s += finished->timings.queue_s;
    outcome_.prefill_s += finished->timings.compute_s;
    outcome_.tokens_computed += finished->timings.tokens_computed;
  }
  return absl::OkStatus();
}

// Publishes the state of prompt and answer at their last block end.
absl::Status DecodeRun::Save() {
  const auto begin = Clock::now();
  std::vector<uint32_t> tokens = prompt_.tokens;
  tokens.insert(tokens.end(), generated_.begin(), generated_.end());
  Manifest from;
  from.tenant = prompt_.tenant;
  from.root = prompt_.root;
  from.state = prompt_.base_key;
  from.boundary = prompt_.base;
  const KeyedPrompt whole = KeyFromState(prompt_.model, prompt_.salt, from, std::move(tokens));
  const uint64_t boundary = FinalBoundary(whole.TokenCount());
  outcome_.saved_handle = whole.HandleAt(boundary, whole.TokenCount());
  if (boundary == 0 || boundary == start_.boundary) {
    // Nothing new: boundary 0 is always there, and the start state was stored before.
    if (saved_.has_value()) ReleaseParts(store_, saved_->parts);
    saved_.reset();
    outcome_.saved_bytes = PartBytes(start_.parts);
    return absl::OkStatus();
  }
  if (!saved_.has_value() || saved_->boundary != boundary) {
    return absl::InternalError(
        absl::StrCat("the worker did not save the state at token ", boundary));
  }
  const StoredBoundary stored = *std::exchange(saved_, std::nullopt);
  absl::StatusOr<PublishedState> published =
      PublishBoundary(store_, whole, whole.KeyAt(boundary), stored);
  if (!published.ok()) return published.status();
  outcome_.saved_bytes = published->bytes;
  outcome_.save_s = SecondsSince(begin);
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
