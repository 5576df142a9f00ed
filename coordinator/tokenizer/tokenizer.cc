#include "coordinator/tokenizer/tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/bytes_tokenizer.h"
#include "coordinator/tokenizer/huggingface_tokenizer.h"
#include "coordinator/tokenizer/tiktoken_tokenizer.h"

namespace deltafill::coordinator {

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewTokenizer(std::string_view kind,
                                                              std::string_view file) {
  if (kind == "bytes") return NewBytesTokenizer(file);
  if (kind == "tiktoken") return NewTiktokenTokenizer(file);
  if (kind == "huggingface") return NewHuggingFaceTokenizer(file);
  return absl::UnimplementedError(
      absl::StrCat("tokenizer kind \"", std::string(kind),
                   "\" is not there; there are \"bytes\", \"tiktoken\", \"huggingface\""));
}

}  // namespace deltafill::coordinator
