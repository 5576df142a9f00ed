// Files of a model directory that are not tensors.
#ifndef DELTAFILL_WORKER_MODEL_MODEL_DIRECTORY_H_
#define DELTAFILL_WORKER_MODEL_MODEL_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/config.h"

namespace deltafill::worker {

// Says how text becomes token ids: {"kind": "bytes", "special_tokens": {"<eos>": 257, ...}}. Kind
// "bytes": token id b is the byte b; special tokens have ids from 256 on and are no text. See
// tokenizer_file.h for the other files that a tokenizer can be made from.
inline constexpr char kTokenizerFileName[] = "deltafill_tokenizer.json";

// config.json. NOT_FOUND if it is missing, INVALID_ARGUMENT naming directory, key and limit.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_MODEL_DIRECTORY_H_
