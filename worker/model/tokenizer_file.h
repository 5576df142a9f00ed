// What a model directory's tokenizer is made from, as the coordinator gets it.
#ifndef DELTAFILL_WORKER_MODEL_TOKENIZER_FILE_H_
#define DELTAFILL_WORKER_MODEL_TOKENIZER_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace deltafill::worker {

// With what else a worker says when it attaches, below the 64 MiB that the coordinator takes.
inline constexpr size_t kTokenizerBytesMax = size_t{48} << 20;

struct TokenizerFile {
  std::string kind;  // "" if the directory serves token ids only
  std::string contents;
};

// By what the directory holds, in this order:
//   deltafill_tokenizer.json   the kind that it names, and its text
//   tiktoken.model             "tiktoken": with tokenizer_config.json, if that is there, as
//                              "deltafill.tiktoken.1\n", length of the configuration in decimal,
//                              "\n", the configuration, tiktoken.model
//   tokenizer.json             "huggingface", and its text
// Does not look into the last two; the coordinator does. INVALID_ARGUMENT naming the path if a file
// is too large or deltafill_tokenizer.json is malformed.
absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& directory);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_TOKENIZER_FILE_H_
