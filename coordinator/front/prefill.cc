// Prefill: the prefix state of a prompt, from the deepest stored one.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/prefill_messages.h"
#include "coordinator/front/prefill_run.h"
#include "coordinator/front/prompt_intake.h"
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

// Turns what the run reports into the stream's events.
class EventWriter final : public PrefillListener {
 public:
  EventWriter(const KeyedPrompt& prompt, Clock::time_point start,
              const SendEvent<v1::PrefillEvent>& send, v1::PrefillDone* done)
      : prompt_(prompt), start_(start), send_(send), done_(done) {}

  absl::Status OnAccepted(uint64_t cached_tokens, const std::string& miss_reason,
                          const PlanSummary& plan) override {
    v1::PrefillEvent event;
    FillAccepted(prompt_.TokenCount(), cached_tokens, miss_reason, plan, event.mutable_accepted());
    return Write(event);
  }

  absl::Status OnProgress(const ProgressReport& report, uint32_t attempt) override {
    v1::PrefillEvent event;
    FillProgress(prompt_.TokenCount(), report, attempt, event.mutable_progress());
    return Write(event);
  }

  absl::Status OnCheckpoint(const RequestedBoundary& requested,
                            const PublishedState& state) override {
    v1::PrefillEvent event;
    v1::CheckpointDurable* checkpoint = event.mutable_checkpoint();
    checkpoint->set_boundary(state.boundary);
    checkpoint->set_state(prompt_.HandleAt(state.boundary, requested.position));
    checkpoint->set_bytes(state.bytes);
    checkpoint->set_already_stored(state.already_stored);
    *done_->add_checkpoints() = *checkpoint;
    return Write(event);
  }

  absl::Status OnLogits(const std::string& values) override {
    v1::PrefillEvent event;
    event.mutable_logits()->set_values(values);
    absl::Status status = Write(event);
    done_->mutable_timings()->set_logits_s(SecondsSince(start_));
    return status;
  }

 private:
  absl::Status Write(const v1::PrefillEvent& event) {
    return send_(event) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
  }

  const KeyedPrompt& prompt_;
  const Clock::time_point start_;  // of the call
  const SendEvent<v1::PrefillEvent>& send_;
  v1::PrefillDone* const done_;
};

void FillDone(const KeyedPrompt& prompt, const PrefillOutcome& outcome, double total_s,
              v1::PrefillDone* done) {
  const uint64_t tokens = prompt.TokenCount();
  done->set_state(prompt.HandleAt(outcome.final_state.boundary, tokens));
  done->set_boundary(outcome.final_state.boundary);
  done->set_tokens(tokens);
  done->set_cached_tokens(outcome.cached_tokens);
  done->set_miss_reason(outcome.miss_reason);
  done->set_schedule(outcome.schedule);
  done->set_attempts(outcome.attempts);
  v1::Usage* usage = done->mutable_usage();
  usage->set_prompt_tokens(tokens);
  usage->set_cached_tokens(outcome.cached_tokens);
  usage->set_computed_tokens(outcome.work.tokens_computed);
  usage->set_state_bytes(outcome.final_state.bytes);
  FillTimings(outcome, total_s, done->mutable_timings());
  // They come as they become durable; the list ascends.
  std::sort(done->mutable_checkpoints()->begin(), done->mutable_checkpoints()->end(),
            [](const auto& a, const auto& b) { return a.boundary() < b.boundary(); });
}

absl::StatusOr<KeyedPrompt> ReadKeyed(FrontContext& context, const Call& call,
                                      const v1::PrefillRequest& request,
                                      const ReceivePiece& receive) {
  absl::StatusOr<ServedModel> model = ChooseModel(context.engine.Models(), request.model());
  if (!model.ok()) return model.status();
  absl::StatusOr<TenantSalt> salt = context.salts.Get(call.tenant);
  if (!salt.ok()) return salt.status();
  return TakePrompt(request, receive,
                    PromptIntake(call.tenant, *std::move(model), *salt, context.tokenizers,
                                 request.prompt_tokens()));
}

absl::Status Run(FrontContext& context, const Call& call, const v1::PrefillRequest& request,
                 const ReceivePiece& receive, const SendEvent<v1::PrefillEvent>& send) {
  const auto start = Clock::now();
  absl::StatusOr<KeyedPrompt> prompt = ReadKeyed(context, call, request, receive);
  if (!prompt.ok()) return prompt.status();
  absl::StatusOr<PrefillAsk> ask = ReadPrefillAsk(request, prompt->TokenCount());
  if (!ask.ok()) return ask.status();
  const double prompt_s = SecondsSince(start);
  v1::PrefillEvent last;
  EventWriter writer(*prompt, start, send, last.mutable_done());
  absl::StatusOr<PrefillOutcome> outcome =
      PrefillRun(context.store, context.engine, *prompt, *ask, writer, call.cancelled).Run();
  if (!outcome.ok()) return outcome.status();
  FillDone(*prompt, *outcome, SecondsSince(start), last.mutable_done());
  last.mutable_done()->mutable_timings()->set_prompt_s(prompt_s);
  return send(last) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
}

}  // namespace

absl::Status Prefill(FrontContext& context, const Call& call, const v1::PrefillRequest& request,
                     const SendEvent<v1::PrefillEvent>& send) {
  if (absl::Status status = CheckPrefillRequest(request); !status.ok()) return status;
  const auto no_more = [](v1::PrefillRequest*) { return false; };
  return Run(context, call, request, no_more, send);
}

absl::Status PrefillInPieces(FrontContext& context, const Call& call, const ReceivePiece& receive,
                             const SendEvent<v1::PrefillEvent>& send) {
  v1::PrefillRequest first;
  if (!receive(&first)) return absl::InvalidArgumentError("prompt: no request came");
  absl::Status status = CheckPrefillRequest(first, /*in_pieces=*/true);
  if (!status.ok()) return status;
  return Run(context, call, first, receive, send);
}

}  // namespace deltafill::coordinator
