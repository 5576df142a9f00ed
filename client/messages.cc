#include "client/messages.h"

#include <cstdio>

namespace deltafill::client {

void SetPrompt(const PromptContent& content, v1::Prompt* prompt) {
  if (const auto* text = std::get_if<PromptText>(&content)) {
    prompt->set_text(text->text);
    return;
  }
  const auto& tokens = std::get<std::vector<uint32_t>>(content);
  prompt->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
}

Json ToJson(const v1::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"cached_tokens", usage.cached_tokens()},
          {"computed_tokens", usage.computed_tokens()},
          {"generated_tokens", usage.generated_tokens()},
          {"state_bytes", usage.state_bytes()}};
}

Json ToJson(const v1::Timings& timings) {
  return {{"prompt_s", timings.prompt_s()},   {"lookup_s", timings.lookup_s()},
          {"queue_s", timings.queue_s()},     {"prefill_s", timings.prefill_s()},
          {"restore_s", timings.restore_s()}, {"logits_s", timings.logits_s()},
          {"save_s", timings.save_s()},       {"stall_s", timings.stall_s()},
          {"total_s", timings.total_s()}};
}

Json ToJson(const v1::StateDescription& state) {
  Json parts = Json::array();
  for (const auto& part : state.parts()) {
    parts.push_back({{"id", part.id()}, {"kind", part.kind()}, {"bytes", part.bytes()}});
  }
  return {{"state_id", state.state_id()},
          {"boundary", state.boundary()},
          {"tail_tokens", state.tail_tokens()},
          {"model_fingerprint", state.model_fingerprint()},
          {"numerics", state.numerics()},
          {"bytes", state.bytes()},
          {"created_unix_ms", state.created_unix_ms()},
          {"pinned", state.pinned()},
          {"verified", state.verified()},
          {"parts", std::move(parts)}};
}

void PrintJson(const Json& object) {
  std::printf("%s\n", object.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace deltafill::client
