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
  const std::lock_guard lock(mutex_);
  const Tried* tried = Find(model);
  if (tried == nullptr) {
    if (made_.size() >= kTokenizersCachedMax) made_.clear();
    made_.push_back({model.tokenizer_kind, model.tokenizer_file,
                     NewTokenizer(model.tokenizer_kind, *model.tokenizer_file)});
    tried = &made_.back().tokenizer;
  }
  if (tried->ok()) return *tried;
  return absl::FailedPreconditionError(
      absl::StrCat("prompt.text: the tokenizer of model ", model.name,
                   " cannot be used: ", std::string(tried->status().message())));
}

const TokenizerShelf::Tried* TokenizerShelf::Find(const ServedModel& model) {
  for (const Made& made : made_) {
    if (made.kind == model.tokenizer_kind && made.file == model.tokenizer_file) {
      return &made.tokenizer;
    }
  }
  // Another worker's copy of the same text: compared once, then known by its address.
  for (Made& made : made_) {
    if (made.kind == model.tokenizer_kind && *made.file == *model.tokenizer_file) {
      made.file = model.tokenizer_file;
      return &made.tokenizer;
    }
  }
  return nullptr;
}

}  // namespace deltafill::coordinator
