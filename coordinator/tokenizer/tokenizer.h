// From text to token ids and back. A tokenizer is part of the model directory; it reaches the
// coordinator as a kind and the contents of a file.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_TOKENIZER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::coordinator {

// Turns generated tokens into text, one at a time. One thread at a time.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // The bytes that this token adds: may be empty, may end inside a UTF-8 sequence. Special tokens
  // and ids that the tokenizer does not know add nothing.
  virtual std::string Push(uint32_t id) = 0;
};

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Tokens of a text. Unless allow_special, no text yields a special token: what stands in a
  // prompt's text cannot end or forge a turn. INVALID_ARGUMENT for text that the kind cannot
  // encode.
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                                       bool allow_special = false) const = 0;

  virtual std::unique_ptr<TokenDecoder> NewDecoder() const = 0;
};

// kind "bytes": ids 0 to 255 are the bytes themselves, special tokens have ids from 256 on; the
// file is {"kind": "bytes", "special_tokens": {"<eos>": 256, ...}}, special_tokens optional.
// UNIMPLEMENTED for another kind, INVALID_ARGUMENT for a malformed file.
absl::StatusOr<std::shared_ptr<const Tokenizer>> NewTokenizer(std::string_view kind,
                                                              std::string_view file);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_TOKENIZER_H_
