// The tokenizers of the models being served, made once each.
#ifndef DELTAFILL_COORDINATOR_FRONT_TOKENIZER_SHELF_H_
#define DELTAFILL_COORDINATOR_FRONT_TOKENIZER_SHELF_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

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
  using Tried = absl::StatusOr<std::shared_ptr<const Tokenizer>>;
  struct Made {
    std::string kind;
    std::shared_ptr<const std::string> file;
    Tried tokenizer;  // or why there is none: it takes a second to find that out
  };

  // Under mutex_. Null if it was not tried yet.
  const Tried* Find(const ServedModel& model);

  std::mutex mutex_;
  std::vector<Made> made_;  // under mutex_
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_TOKENIZER_SHELF_H_
