#include "worker/runtime/command_checks.h"

#include "absl/strings/str_cat.h"
#include "statestore/identity.h"

namespace deltafill::worker {

absl::Status CheckWholeBlocks(absl::string_view field, int64_t tokens) {
  if (tokens >= kBlockTokenCount && tokens % kBlockTokenCount == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is ", tokens, ", must be a positive multiple of 64"));
}

absl::Status CheckTokens(uint64_t first_token, std::span<const uint32_t> tokens,
                         int64_t vocabulary) {
  if (first_token % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_token: is ", first_token, ", must be a multiple of 64"));
  }
  if (tokens.empty()) return absl::InvalidArgumentError("tokens: empty");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < static_cast<uint64_t>(vocabulary)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: id ", tokens[i], " at position ", first_token + i,
                     " is not below the vocabulary size ", vocabulary));
  }
  return absl::OkStatus();
}

}  // namespace deltafill::worker
