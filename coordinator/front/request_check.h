// Validation of every request: all limits of the API in one place. INVALID_ARGUMENT naming the
// field and the limit; nothing has been computed by then.
#ifndef DELTAFILL_COORDINATOR_FRONT_REQUEST_CHECK_H_
#define DELTAFILL_COORDINATOR_FRONT_REQUEST_CHECK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/prefill_run.h"
#include "coordinator/front/tokenizer_shelf.h"
#include "coordinator/prompt_engine.h"

namespace deltafill::v1 {
class DecodeRequest;
class FetchStateRequest;
class ListStatesRequest;
class LookupRequest;
class PrefillRequest;
class Prompt;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// Fields that can be judged without knowing the model.
absl::Status CheckPrefillRequest(const v1::PrefillRequest& request, bool in_pieces = false);
// Of a prompt in pieces, all but the first.
absl::Status CheckPiece(const v1::PrefillRequest& piece);
absl::Status CheckLookupRequest(const v1::LookupRequest& request);
absl::Status CheckDecodeRequest(const v1::DecodeRequest& request);
absl::Status CheckFetchStateRequest(const v1::FetchStateRequest& request);
absl::Status CheckListStatesRequest(const v1::ListStatesRequest& request);

// The prompt's tokens, all below the model's vocabulary size, at most kPromptTokensMax; empty only
// where no prompt is given. FAILED_PRECONDITION for text without tokenizer.
absl::StatusOr<std::vector<uint32_t>> ReadPrompt(const v1::Prompt& prompt, const ServedModel& model,
                                                 TokenizerShelf& tokenizers);

// All below the model's vocabulary size; `field` names them, the first is its element `first`.
absl::Status CheckTokens(std::span<const uint32_t> tokens, const ServedModel& model,
                         const char* field, uint64_t first = 0);

// A prompt of that many tokens, and `generated` after it, within the model's positions.
absl::Status CheckPositions(uint64_t tokens, uint64_t generated, const ServedModel& model);

// The request's checkpoints, schedule and exactness, for a prompt of that many tokens.
absl::StatusOr<PrefillAsk> ReadPrefillAsk(const v1::PrefillRequest& request, uint64_t tokens);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_REQUEST_CHECK_H_
