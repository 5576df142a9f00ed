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

// By kind; the worker says which one a model directory holds.
//
// "bytes" (deltafill_tokenizer.json): ids 0 to 255 are the bytes themselves, special tokens have
//   ids from 256 on; the file is {"kind": "bytes", "special_tokens": {"<eos>": 256, ...}},
//   special_tokens optional.
//
// "tiktoken" (tiktoken.model and tokenizer_config.json, Kimi's way): byte-pair encoding by rank,
//   over Kimi's pattern. The contents are "deltafill.tiktoken.1\n", the length of
//   tokenizer_config.json in decimal and "\n", that file (length 0: there is none), then
//   tiktoken.model: lines of base64, a space and a rank, which is the id; every single byte has
//   one. What added_tokens_decoder lists is never found in text unless allow_special; those that
//   it flags special add nothing when decoded. Equal to tiktoken's encode_ordinary, and to its
//   encode with every special token allowed, but that of two that start alike the longer is found
//   (tiktoken leaves that open). (Kimi's Python wrapper also cuts text at 400,000
//   characters and runs of 25,000 without white space, because of limits that are not here.)
//
// "huggingface" (tokenizer.json): byte-level byte-pair encoding as the tokenizers library does it,
//   add_special_tokens off, and encode_special_tokens on unless allow_special: special tokens are
//   those flagged so; added tokens that are not flagged belong to plain text and are always found.
//   Takes model BPE (with ignore_merges), normalizer NFC, pre-tokenizers Split
//   (Isolated, Removed, invert), Digits, and ByteLevel last. Everything else is refused, naming the
//   key: what is accepted never yields other tokens than the library.
//
// Both take any bytes. Runs of bytes that are not UTF-8 are each encoded as one piece, byte by byte
// and merged; the well-formed text between them is encoded as texts of their own. So decoding gives
// back what was encoded (where there is no normaliser). Unicode is version 16, as in both
// libraries. Time is O(n log n) in the text's length, memory linear: about 30 bytes for each byte
// of the longest stretch that no pattern cuts.
//
// UNIMPLEMENTED for another kind or for what the kind does not support, INVALID_ARGUMENT for
// malformed contents; both name the key or the line.
absl::StatusOr<std::shared_ptr<const Tokenizer>> NewTokenizer(std::string_view kind,
                                                              std::string_view file);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_TOKENIZER_H_
