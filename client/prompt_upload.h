// Sends a prompt in pieces, so that the service works on its beginning while its end is on the way.
#ifndef DELTAFILL_CLIENT_PROMPT_UPLOAD_H_
#define DELTAFILL_CLIENT_PROMPT_UPLOAD_H_

#include "absl/functional/function_ref.h"
#include "client/prompt_source.h"

namespace deltafill::v1 {
class PrefillRequest;
}  // namespace deltafill::v1

namespace deltafill::client {

// False if the service has given the call up.
using WriteRequest = absl::FunctionRef<bool(const v1::PrefillRequest&)>;

// The requests of PrefillInPieces: `request`, which has no prompt yet, with the prompt's beginning,
// and its other pieces. Ends early when writing fails.
void SendInPieces(const v1::PrefillRequest& request, const PromptContent& prompt,
                  WriteRequest write);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_PROMPT_UPLOAD_H_
