// Tokenizers made from Hugging Face's tokenizer.json.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_TOKENIZER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewHuggingFaceTokenizer(std::string_view contents);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_TOKENIZER_H_
