#include "coordinator/front/tokenizer_shelf.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"

namespace deltafill::coordinator {

absl::StatusOr<std::shared_ptr<const Tokenizer>> TokenizerShelf::Get(const ServedModel& model) {
  if (model.tokenizer_kind.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "prompt.text: model ", model.name, " has no tokenizer; it serves token ids only"));
  }
  const Key key{model.tokenizer_kind, model.tokenizer_file};
  const std::lock_guard lock(mutex_);
  const auto found = tokenizers_.find(key);
  if (found != tokenizers_.end()) return found->second;
  absl::StatusOr<std::shared_ptr<const Tokenizer>> made =
      NewTokenizer(model.tokenizer_kind, model.tokenizer_file);
  if (!made.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("prompt.text: the tokenizer of model ", model.name,
                     " cannot be used: ", std::string(made.status().message())));
  }
  if (tokenizers_.size() >= kTokenizersCachedMax) tokenizers_.clear();
  tokenizers_[key] = *made;
  return made;
}

}  // namespace deltafill::coordinator
