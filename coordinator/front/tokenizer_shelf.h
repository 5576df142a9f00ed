// The tokenizers of the models being served, made once each.
#ifndef DELTAFILL_COORDINATOR_FRONT_TOKENIZER_SHELF_H_
#define DELTAFILL_COORDINATOR_FRONT_TOKENIZER_SHELF_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/prompt_engine.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {

// Thread-safe.
class TokenizerShelf {
 public:
  // FAILED_PRECONDITION if the model serves token ids only or its tokenizer cannot be made.
  absl::StatusOr<std::shared_ptr<const Tokenizer>> Get(const ServedModel& model);

 private:
  using Key = std::pair<std::string, std::string>;  // kind and file

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Tokenizer>> tokenizers_;  // under mutex_
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_TOKENIZER_SHELF_H_
