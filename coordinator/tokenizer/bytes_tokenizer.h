// The byte-level tokenizer: every byte is a token.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_BYTES_TOKENIZER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_BYTES_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewBytesTokenizer(std::string_view file);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_BYTES_TOKENIZER_H_
