// Tokenizers made from tiktoken.model, as Kimi models have it.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_TIKTOKEN_TOKENIZER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_TIKTOKEN_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewTiktokenTokenizer(std::string_view contents);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_TIKTOKEN_TOKENIZER_H_
