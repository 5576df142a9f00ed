// The tokenizer that a service says its model has.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_FETCHED_TOKENIZER_H_
#define DELTAFILL_CLIENT_SNAPSHOT_FETCHED_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/snapshot/composed_snapshot.h"
#include "client/snapshot/snapshot_calls.h"

namespace deltafill::coordinator {
class Tokenizer;
}

namespace deltafill::client {

// Asks at every Fetch, but makes a tokenizer anew only if the answer is another: a large vocabulary
// takes a while. Not thread-safe.
class FetchedTokenizer {
 public:
  // As GetTokenizer and NewTokenizer. What is returned outlives this, and yields special tokens
  // only if they are allowed.
  absl::StatusOr<Tokenize> Fetch(SnapshotCalls& calls, const std::string& model,
                                 bool allow_special = false);

 private:
  std::string kind_;
  std::string file_;
  std::shared_ptr<const coordinator::Tokenizer> tokenizer_;  // of kind_ and file_, or null
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_FETCHED_TOKENIZER_H_
