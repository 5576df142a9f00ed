#include "coordinator/front/request_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/front/checkpoint_request.h"
#include "coordinator/front/limits.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

absl::Status CheckModelName(const std::string& name) {
  if (name.size() <= kModelNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model: longer than ", kModelNameBytesMax, " bytes"));
}

absl::Status CheckPromptSize(const v1::Prompt& prompt, bool may_be_empty) {
  if (prompt.text().size() > kPromptTextBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("prompt.text: ", prompt.text().size(),
                                                   " bytes; at most ", kPromptTextBytesMax));
  }
  const auto ids = static_cast<uint64_t>(prompt.tokens().ids_size());
  if (ids > kPromptTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt.tokens: ", ids, " tokens; at most ", kPromptTokensMax));
  }
  if (ids == 0 && prompt.text().empty() && !may_be_empty) {
    return absl::InvalidArgumentError("prompt: empty; at least 1 token is required");
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const v1::Sampling& sampling) {
  // Written so that a NaN fails.
  if (!(sampling.temperature() >= 0.0 && sampling.temperature() <= kTemperatureMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.temperature: must be in 0 to ", kTemperatureMax));
  }
  if (!(sampling.top_p() >= 0.0 && sampling.top_p() <= 1.0)) {
    return absl::InvalidArgumentError("sampling.top_p: must be in (0, 1], or 0 for 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPrefillRequest(const v1::PrefillRequest& request, bool in_pieces) {
  if (absl::Status status = CheckModelName(request.model()); !status.ok()) return status;
  if (!v1::Exactness_IsValid(request.exactness())) {
    return absl::InvalidArgumentError(
        absl::StrCat("exactness: ", static_cast<int>(request.exactness()), " is not known"));
  }
  if (!v1::Schedule_IsValid(request.schedule())) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", static_cast<int>(request.schedule()), " is not known"));
  }
  if (request.prompt_tokens() > kPromptTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("prompt_tokens: ", request.prompt_tokens(),
                                                   " tokens; at most ", kPromptTokensMax));
  }
  return CheckPromptSize(request.prompt(), /*may_be_empty=*/in_pieces);
}

absl::Status CheckPiece(const v1::PrefillRequest& piece) {
  if (!piece.model().empty() || piece.checkpoint_at_size() > 0 || piece.checkpoint_every() != 0 ||
      piece.no_resume() || piece.return_logits() || piece.exactness() != 0 ||
      piece.schedule() != 0 || piece.prompt_tokens() != 0) {
    return absl::InvalidArgumentError(
        "prompt: requests after the first have nothing but a prompt that goes on");
  }
  return CheckPromptSize(piece.prompt(), /*may_be_empty=*/true);
}

absl::Status CheckLookupRequest(const v1::LookupRequest& request) {
  if (absl::Status status = CheckModelName(request.model()); !status.ok()) return status;
  return CheckPromptSize(request.prompt(), /*may_be_empty=*/false);
}

absl::Status CheckDecodeRequest(const v1::DecodeRequest& request) {
  if (absl::Status status = CheckModelName(request.model()); !status.ok()) return status;
  if (request.max_tokens() < 1 || request.max_tokens() > kDecodeTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens: ", request.max_tokens(), " is not in 1 to ", kDecodeTokensMax));
  }
  if (request.stop_ids_size() > kStopIdsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop_ids: ", request.stop_ids_size(), " ids; at most ", kStopIdsMax));
  }
  if (absl::Status status = CheckSampling(request.sampling()); !status.ok()) return status;
  return CheckPromptSize(request.prompt(), /*may_be_empty=*/!request.state().empty());
}

absl::Status CheckFetchStateRequest(const v1::FetchStateRequest& request) {
  if (request.layout().size() > kLayoutNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: longer than ", kLayoutNameBytesMax, " bytes"));
  }
  if (!v1::StatePosition_IsValid(request.position())) {
    return absl::InvalidArgumentError(
        absl::StrCat("position: ", static_cast<int>(request.position()), " is not known"));
  }
  if (request.layers_size() > kFetchLayersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers: ", request.layers_size(), " layers; at most ", kFetchLayersMax));
  }
  for (int i = 1; i < request.layers_size(); ++i) {
    if (request.layers(i) > request.layers(i - 1)) continue;
    return absl::InvalidArgumentError(absl::StrCat("layers[", i, "]: must ascend"));
  }
  if (request.head_end() == 0 || request.head_begin() < request.head_end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("head_begin: ", request.head_begin(),
                                                 " is not below head_end ", request.head_end()));
}

absl::Status CheckListStatesRequest(const v1::ListStatesRequest& request) {
  if (request.limit() > kListLimitMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit: ", request.limit(), " is above ", kListLimitMax));
  }
  if (request.page().size() > kPageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("page: longer than ", kPageBytesMax, " bytes; give a response's next_page"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ReadPrompt(const v1::Prompt& prompt, const ServedModel& model,
                                                 TokenizerShelf& tokenizers) {
  std::vector<uint32_t> tokens;
  if (prompt.source_case() == v1::Prompt::kText) {
    absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = tokenizers.Get(model);
    if (!tokenizer.ok()) return tokenizer.status();
    absl::StatusOr<std::vector<uint32_t>> encoded = (*tokenizer)->Encode(prompt.text());
    if (!encoded.ok()) return encoded;
    tokens = *std::move(encoded);
    if (tokens.size() > kPromptTokensMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt.text: ", tokens.size(), " tokens; at most ", kPromptTokensMax));
    }
  } else {
    tokens.assign(prompt.tokens().ids().begin(), prompt.tokens().ids().end());
  }
  absl::Status status = CheckTokens(tokens, model, "prompt.tokens.ids");
  if (!status.ok()) return status;
  return tokens;
}

absl::Status CheckTokens(std::span<const uint32_t> tokens, const ServedModel& model,
                         const char* field, uint64_t first) {
  // One comparison at the end, for most prompts are right.
  uint32_t largest = 0;
  for (uint32_t token : tokens) largest = std::max(largest, token);
  if (tokens.empty() || largest < model.vocabulary) return absl::OkStatus();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < model.vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, "[", first + i, "]: ", tokens[i],
                                                   " is not below the model's vocabulary size ",
                                                   model.vocabulary));
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(uint64_t tokens, uint64_t generated, const ServedModel& model) {
  if (model.position_max == 0 || tokens + generated <= model.position_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("prompt: ", tokens, " tokens",
                   generated > 0 ? absl::StrCat(" and ", generated, " of max_tokens") : "",
                   "; the model has at most ", model.position_max, " positions"));
}

absl::StatusOr<PrefillAsk> ReadPrefillAsk(const v1::PrefillRequest& request, uint64_t tokens) {
  absl::StatusOr<std::vector<RequestedBoundary>> requested = MergeCheckpoints(
      {request.checkpoint_at().data(), static_cast<size_t>(request.checkpoint_at_size())},
      request.checkpoint_every(), tokens);
  if (!requested.ok()) return requested.status();
  PrefillAsk ask;
  ask.requested = *std::move(requested);
  ask.no_resume = request.no_resume();
  ask.return_logits = request.return_logits();
  ask.any_exactness = request.exactness() == v1::EXACTNESS_ANY;
  ask.schedule = request.schedule() == v1::SCHEDULE_WAVEFRONT ? ScheduleChoice::kWavefront
                                                              : ScheduleChoice::kAuto;
  return ask;
}

}  // namespace deltafill::coordinator
