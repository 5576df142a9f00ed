// Decode: tokens after a prompt, or after a state and more tokens.
#include <chrono>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/decode_run.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/handle.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/request_check.h"
#include "coordinator/front/state_access.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

class EventWriter final : public DecodeListener {
 public:
  EventWriter(uint64_t prompt_tokens, std::unique_ptr<TokenDecoder> decoder,
              const SendEvent<v1::DecodeEvent>& send)
      : prompt_tokens_(prompt_tokens), decoder_(std::move(decoder)), send_(send) {}

  absl::Status OnStarted(uint64_t cached_tokens, const std::string& miss_reason) override {
    v1::DecodeEvent event;
    event.mutable_started()->set_prompt_tokens(prompt_tokens_);
    event.mutable_started()->set_cached_tokens(cached_tokens);
    event.mutable_started()->set_miss_reason(miss_reason);
    return Write(event);
  }

  absl::Status OnToken(uint32_t id) override {
    v1::DecodeEvent event;
    event.mutable_token()->set_id(id);
    if (decoder_ != nullptr) event.mutable_token()->set_text(decoder_->Push(id));
    return Write(event);
  }

 private:
  absl::Status Write(const v1::DecodeEvent& event) {
    return send_(event) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
  }

  const uint64_t prompt_tokens_;
  const std::unique_ptr<TokenDecoder> decoder_;  // null if the model has none that can be used
  const SendEvent<v1::DecodeEvent>& send_;
};

// A state and the tokens after it.
absl::StatusOr<KeyedPrompt> PromptAfterState(FrontContext& context, const Call& call,
                                             const v1::DecodeRequest& request,
                                             const TenantSalt& salt) {
  absl::StatusOr<PrefixRef> ref = DecodeStateReference(request.state(), "state");
  if (!ref.ok()) return ref.status();
  const std::vector<ServedModel> served = context.engine.Models();
  absl::StatusOr<Manifest> manifest =
      FindState(context.store, call.tenant, salt, *ref, served, "state");
  if (!manifest.ok()) return manifest.status();
  absl::StatusOr<ServedModel> model =
      ModelOfState(served, manifest->fingerprint, manifest->numerics, request.model());
  if (!model.ok()) return model.status();
  if (absl::Status status = CheckTail(*ref, *model); !status.ok()) return status;
  absl::StatusOr<std::vector<uint32_t>> more =
      ReadPrompt(request.prompt(), *model, context.tokenizers);
  if (!more.ok()) return more.status();
  std::vector<uint32_t> tokens = std::move(ref->tail);
  tokens.insert(tokens.end(), more->begin(), more->end());
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        "state: has no tail and prompt is empty; at least 1 token to decode from is required");
  }
  return KeyFromState(*std::move(model), salt, *manifest, std::move(tokens));
}

absl::StatusOr<KeyedPrompt> PromptAlone(FrontContext& context, const Call& call,
                                        const v1::DecodeRequest& request, const TenantSalt& salt) {
  absl::StatusOr<ServedModel> model = ChooseModel(context.engine.Models(), request.model());
  if (!model.ok()) return model.status();
  absl::StatusOr<std::vector<uint32_t>> tokens =
      ReadPrompt(request.prompt(), *model, context.tokenizers);
  if (!tokens.ok()) return tokens.status();
  return KeyWholePrompt(call.tenant, *std::move(model), salt, *std::move(tokens));
}

absl::StatusOr<DecodeAsk> ReadDecodeAsk(const v1::DecodeRequest& request,
                                        const KeyedPrompt& prompt) {
  if (prompt.TokenCount() > kPromptTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt: ", prompt.TokenCount(), " tokens with the state's; at most ", kPromptTokensMax));
  }
  absl::Status status = CheckPositions(prompt.TokenCount(), request.max_tokens(), prompt.model);
  if (!status.ok()) return status;
  for (const uint32_t id : request.stop_ids()) {
    if (id >= prompt.model.vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stop_ids: ", id, " is not below the vocabulary of ", prompt.model.vocabulary));
    }
  }
  DecodeAsk ask;
  ask.max_tokens = request.max_tokens();
  ask.temperature = request.sampling().temperature();
  ask.top_p = request.sampling().top_p() == 0.0 ? 1.0 : request.sampling().top_p();
  ask.seed = request.sampling().seed();
  ask.stop_ids.assign(request.stop_ids().begin(), request.stop_ids().end());
  if (!request.ignore_eos()) {
    ask.stop_ids.insert(ask.stop_ids.end(), prompt.model.eos_ids.begin(),
                        prompt.model.eos_ids.end());
  }
  ask.save_state = request.save_state();
  return ask;
}

void FillDone(const KeyedPrompt& prompt, const DecodeOutcome& outcome, double total_s,
              v1::DecodeDone* done) {
  done->set_finish_reason(outcome.finish_reason);
  done->set_state(outcome.saved_handle);
  v1::Usage* usage = done->mutable_usage();
  usage->set_prompt_tokens(prompt.TokenCount());
  usage->set_cached_tokens(outcome.cached_tokens);
  usage->set_computed_tokens(outcome.tokens_computed);
  usage->set_generated_tokens(outcome.tokens_generated);
  usage->set_state_bytes(outcome.saved_bytes);
  v1::Timings* timings = done->mutable_timings();
  timings->set_lookup_s(outcome.lookup_s);
  timings->set_queue_s(outcome.queue_s);
  timings->set_prefill_s(outcome.prefill_s);
  timings->set_save_s(outcome.save_s);
  timings->set_total_s(total_s);
}

}  // namespace

absl::Status Decode(FrontContext& context, const Call& call, const v1::DecodeRequest& request,
                    const SendEvent<v1::DecodeEvent>& send) {
  const auto start = Clock::now();
  if (absl::Status status = CheckDecodeRequest(request); !status.ok()) return status;
  absl::StatusOr<TenantSalt> salt = context.salts.Get(call.tenant);
  if (!salt.ok()) return salt.status();
  absl::StatusOr<KeyedPrompt> prompt = request.state().empty()
                                           ? PromptAlone(context, call, request, *salt)
                                           : PromptAfterState(context, call, request, *salt);
  if (!prompt.ok()) return prompt.status();
  absl::StatusOr<DecodeAsk> ask = ReadDecodeAsk(request, *prompt);
  if (!ask.ok()) return ask.status();
  std::unique_ptr<TokenDecoder> decoder;
  if (!prompt->model.tokenizer_kind.empty()) {
    absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer =
        context.tokenizers.Get(prompt->model);
    // A prompt of token ids is answered in token ids where the tokenizer cannot be used.
    if (tokenizer.ok()) decoder = (*tokenizer)->NewDecoder();
  }
  EventWriter writer(prompt->TokenCount(), std::move(decoder), send);
  absl::StatusOr<DecodeOutcome> outcome =
      DecodeRun(context.store, context.engine, *prompt, *ask, writer, call.cancelled).Run();
  if (!outcome.ok()) return outcome.status();
  v1::DecodeEvent last;
  FillDone(*prompt, *outcome, SecondsSince(start), last.mutable_done());
  return send(last) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
}

}  // namespace deltafill::coordinator
