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
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

// Turns what the run reports into the stream's events.
class EventWriter final : public PrefillListener {
 public:
  EventWriter(const KeyedPrompt& prompt, const SendEvent<v1::PrefillEvent>& send,
              v1::PrefillDone* done)
      : prompt_(prompt), send_(send), done_(done) {}

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
    return Write(event);
  }

 private:
  absl::Status Write(const v1::PrefillEvent& event) {
    return send_(event) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
  }

  const KeyedPrompt& prompt_;
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

}  // namespace

absl::Status Prefill(FrontContext& context, const Call& call, const v1::PrefillRequest& request,
                     const SendEvent<v1::PrefillEvent>& send) {
  const auto start = Clock::now();
  if (absl::Status status = CheckPrefillRequest(request); !status.ok()) return status;
  absl::StatusOr<ServedModel> model = ChooseModel(context.engine.Models(), request.model());
  if (!model.ok()) return model.status();
  absl::StatusOr<std::vector<uint32_t>> tokens =
      ReadPrompt(request.prompt(), *model, context.tokenizers);
  if (!tokens.ok()) return tokens.status();
  if (absl::Status status = CheckPositions(tokens->size(), 0, *model); !status.ok()) return status;
  absl::StatusOr<PrefillAsk> ask = ReadPrefillAsk(request, tokens->size());
  if (!ask.ok()) return ask.status();
  absl::StatusOr<TenantSalt> salt = context.salts.Get(call.tenant);
  if (!salt.ok()) return salt.status();

  const KeyedPrompt prompt =
      KeyWholePrompt(call.tenant, *std::move(model), *salt, *std::move(tokens));
  v1::PrefillEvent last;
  EventWriter writer(prompt, send, last.mutable_done());
  absl::StatusOr<PrefillOutcome> outcome =
      PrefillRun(context.store, context.engine, prompt, *ask, writer, call.cancelled).Run();
  if (!outcome.ok()) return outcome.status();
  FillDone(prompt, *outcome, SecondsSince(start), last.mutable_done());
  return send(last) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
}

}  // namespace deltafill::coordinator
