// A prompt on its way in: what has arrived is checked and keyed while the rest still arrives.
#ifndef DELTAFILL_COORDINATOR_FRONT_PROMPT_INTAKE_H_
#define DELTAFILL_COORDINATOR_FRONT_PROMPT_INTAKE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/keyed_prompt.h"
#include "coordinator/front/tokenizer_shelf.h"

namespace deltafill::v1 {
class PrefillRequest;
class Prompt;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// Failures are INVALID_ARGUMENT naming the field and the limit, or FAILED_PRECONDITION for text
// without tokenizer. Nothing may be called after one.
class PromptIntake {
 public:
  // The tokenizers must outlive it. tokens_expected: of the whole prompt; 0: not known.
  PromptIntake(std::string tenant, ServedModel model, const TenantSalt& salt,
               TokenizerShelf& tokenizers, uint64_t tokens_expected);

  // Goes on where the piece before ended; text cannot follow on tokens, nor they on text.
  absl::Status Add(const v1::Prompt& piece);

  // After the last piece.
  absl::StatusOr<KeyedPrompt> Finish();

 private:
  absl::Status AddTokens(std::span<const uint32_t> tokens);

  TokenizerShelf& tokenizers_;
  const uint64_t tokens_expected_;
  KeyedPrompt prompt_;
  std::string text_;
};

// False at the end of what the caller sends.
using ReceivePiece = std::function<bool(v1::PrefillRequest*)>;

// The prompt of the first request and of those that `receive` gives after it.
absl::StatusOr<KeyedPrompt> TakePrompt(const v1::PrefillRequest& first, const ReceivePiece& receive,
                                       PromptIntake intake);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PROMPT_INTAKE_H_
