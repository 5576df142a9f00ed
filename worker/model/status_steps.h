// Early returns on errors, and operator errors as the rest of the worker reports them.
#ifndef DELTAFILL_WORKER_MODEL_STATUS_STEPS_H_
#define DELTAFILL_WORKER_MODEL_STATUS_STEPS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/status.h"

namespace deltafill::worker {

// kInvalidArgument and kInternal keep their names, kUnsupported is UNIMPLEMENTED.
inline absl::Status FromOperator(const kernels::Status& status) {
  switch (status.code()) {
    case kernels::StatusCode::kOk:
      return absl::OkStatus();
    case kernels::StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case kernels::StatusCode::kUnsupported:
      return absl::UnimplementedError(status.message());
    case kernels::StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(status.message());
    case kernels::StatusCode::kInternal:
      break;
  }
  return absl::InternalError(status.message());
}
inline absl::Status FromOperator(absl::Status status) { return status; }

}  // namespace deltafill::worker

// Returns from the calling function if the absl::Status or kernels::Status is an error.
#define DELTAFILL_TRY(expression)                                                                  \
  do {                                                                                             \
    if (absl::Status try_status = ::deltafill::worker::FromOperator(expression); !try_status.ok()) \
      return try_status;                                                                           \
  } while (false)

// Declares `variable` from a StatusOr, or returns its error.
#define DELTAFILL_TRY_ASSIGN(variable, expression)        \
  auto variable##_or = (expression);                      \
  if (!variable##_or.ok()) return variable##_or.status(); \
  auto& variable = *variable##_or  // NOLINT(bugprone-macro-parentheses): it declares

#endif  // DELTAFILL_WORKER_MODEL_STATUS_STEPS_H_
