#include "coordinator/front/prompt_intake.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"
#include "statestore/prefix_key.h"

namespace deltafill::coordinator {

PromptIntake::PromptIntake(std::string tenant, ServedModel model, const TenantSalt& salt,
                           TokenizerShelf& tokenizers, uint64_t tokens_expected)
    : tokenizers_(tokenizers),
      tokens_expected_(tokens_expected),
      prompt_(KeyWholePrompt(std::move(tenant), std::move(model), salt, {})) {
  prompt_.tokens.reserve(std::min(tokens_expected, kPromptTokensMax));
}

absl::Status PromptIntake::Add(const v1::Prompt& piece) {
  switch (piece.source_case()) {
    case v1::Prompt::kTokens:
      if (!text_.empty()) return absl::InvalidArgumentError("prompt.tokens: follow on text");
      return AddTokens(
          {piece.tokens().ids().data(), static_cast<size_t>(piece.tokens().ids_size())});
    case v1::Prompt::kText:
      if (!prompt_.tokens.empty())
        return absl::InvalidArgumentError("prompt.text: follows on tokens");
      if (piece.text().size() > kPromptTextBytesMax - text_.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("prompt.text: over ", kPromptTextBytesMax, " bytes"));
      }
      text_.append(piece.text());
      return absl::OkStatus();
    case v1::Prompt::SOURCE_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status PromptIntake::AddTokens(std::span<const uint32_t> tokens) {
  std::vector<uint32_t>& all = prompt_.tokens;
  if (tokens.size() > kPromptTokensMax - all.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt.tokens: over ", kPromptTokensMax, " tokens"));
  }
  absl::Status status = CheckTokens(tokens, prompt_.model, "prompt.tokens.ids", all.size());
  if (!status.ok()) return status;
  all.insert(all.end(), tokens.begin(), tokens.end());
  std::vector<StateId>& chain = prompt_.chain;
  const StateId last = chain.empty() ? prompt_.base_key : chain.back();
  const std::vector<StateId> more =
      KeyChain(last, std::span(all).subspan(chain.size() * kBlockTokenCount));
  chain.insert(chain.end(), more.begin(), more.end());
  return absl::OkStatus();
}

absl::StatusOr<KeyedPrompt> PromptIntake::Finish() {
  if (!text_.empty()) {
    v1::Prompt whole;
    whole.set_text(std::move(text_));
    absl::StatusOr<std::vector<uint32_t>> tokens = ReadPrompt(whole, prompt_.model, tokenizers_);
    if (!tokens.ok()) return tokens.status();
    if (absl::Status status = AddTokens(*tokens); !status.ok()) return status;
  }
  const uint64_t count = prompt_.TokenCount();
  if (count == 0) return absl::InvalidArgumentError("prompt: empty; at least 1 token is required");
  if (tokens_expected_ != 0 && count != tokens_expected_) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_tokens: is ", tokens_expected_, ", but ", count, " tokens came"));
  }
  if (absl::Status status = CheckPositions(count, 0, prompt_.model); !status.ok()) return status;
  return std::move(prompt_);
}

absl::StatusOr<KeyedPrompt> TakePrompt(const v1::PrefillRequest& first, const ReceivePiece& receive,
                                       PromptIntake intake) {
  if (absl::Status status = intake.Add(first.prompt()); !status.ok()) return status;
  v1::PrefillRequest piece;
  while (receive(&piece)) {
    if (absl::Status status = CheckPiece(piece); !status.ok()) return status;
    if (absl::Status status = intake.Add(piece.prompt()); !status.ok()) return status;
  }
  return intake.Finish();
}

}  // namespace deltafill::coordinator
