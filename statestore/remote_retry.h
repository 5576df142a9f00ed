// Deadlines and retries of calls to the store's service.
#ifndef DELTAFILL_STATESTORE_REMOTE_RETRY_H_
#define DELTAFILL_STATESTORE_REMOTE_RETRY_H_

#include <chrono>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace grpc {
class ClientContext;
}

namespace deltafill {

inline constexpr std::chrono::milliseconds kControlDeadline{30'000};  // an attempt
inline constexpr std::chrono::milliseconds kDataDeadline{300'000};

// Calls attempt with a fresh context, again after UNAVAILABLE: at most 4 times within about 2 s.
// The call must be idempotent. A deadline that passed becomes UNAVAILABLE: the store was not
// reached. UNAVAILABLE and UNIMPLEMENTED say that they are the state store's.
absl::Status CallWithRetries(std::chrono::milliseconds deadline,
                             absl::FunctionRef<absl::Status(grpc::ClientContext*)> attempt);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_REMOTE_RETRY_H_
