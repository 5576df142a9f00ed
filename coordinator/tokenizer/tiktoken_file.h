// The contents of a tokenizer of kind "tiktoken".
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_TIKTOKEN_FILE_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_TIKTOKEN_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/added_tokens.h"

namespace deltafill::coordinator {

inline constexpr size_t kTokenSizeMax = 1024;  // bytes of one token

struct RankedToken {
  std::string bytes;
  uint32_t rank = 0;  // also its id
};

struct TiktokenFile {
  std::vector<RankedToken> ranked;  // in the file's order; no bytes and no rank twice
  std::vector<AddedToken> added;    // ids are none of the ranks
};

// Reads what tokenizer.h describes. INVALID_ARGUMENT naming file and line or key; UNIMPLEMENTED
// naming the key.
absl::StatusOr<TiktokenFile> ReadTiktokenFile(std::string_view contents);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_TIKTOKEN_FILE_H_
