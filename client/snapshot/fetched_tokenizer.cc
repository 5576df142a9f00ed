#include "client/snapshot/fetched_tokenizer.h"

#include <utility>

#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::client {

absl::StatusOr<Tokenize> FetchedTokenizer::Fetch(SnapshotCalls& calls, const std::string& model,
                                                 bool allow_special) {
  v1::TokenizerDescription description;
  if (absl::Status status = calls.GetTokenizer(model, &description); !status.ok()) return status;
  const bool same =
      tokenizer_ != nullptr && description.kind() == kind_ && description.file() == file_;
  if (!same) {
    auto made = coordinator::NewTokenizer(description.kind(), description.file());
    if (!made.ok()) return made.status();
    tokenizer_ = *std::move(made);
    kind_ = std::move(*description.mutable_kind());
    file_ = std::move(*description.mutable_file());
  }
  return Tokenize([tokenizer = tokenizer_, allow_special](std::string_view text) {
    return tokenizer->Encode(text, allow_special);
  });
}

}  // namespace deltafill::client
