#include "statestore/remote_retry.h"

#include <grpcpp/client_context.h>

#include <array>
#include <thread>

#include "absl/strings/str_cat.h"

namespace deltafill {
namespace {

constexpr std::array<std::chrono::milliseconds, 3> kPauses = {std::chrono::milliseconds{100},
                                                              std::chrono::milliseconds{400},
                                                              std::chrono::milliseconds{1500}};

}  // namespace

absl::Status CallWithRetries(std::chrono::milliseconds deadline,
                             absl::FunctionRef<absl::Status(grpc::ClientContext*)> attempt) {
  for (size_t tries = 0;; ++tries) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    const absl::Status status = attempt(&context);
    if (absl::IsDeadlineExceeded(status)) {
      return absl::UnavailableError(
          absl::StrCat("state store: no answer within ", deadline.count(), " ms"));
    }
    if (absl::IsUnimplemented(status)) {
      return absl::UnimplementedError(absl::StrCat(
          "state store: what answers at its address is none, or an older one: ", status.message()));
    }
    if (!absl::IsUnavailable(status)) return status;
    if (tries == kPauses.size()) {
      // Who reads this may talk to another service altogether.
      return absl::UnavailableError(absl::StrCat("state store: ", status.message()));
    }
    std::this_thread::sleep_for(kPauses[tries]);
  }
}

}  // namespace deltafill
