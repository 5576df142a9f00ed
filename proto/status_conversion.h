// absl::Status <-> grpc::Status. The code numbers of the two agree, so nothing is lost but
// payloads.
#ifndef DELTAFILL_PROTO_STATUS_CONVERSION_H_
#define DELTAFILL_PROTO_STATUS_CONVERSION_H_

#include "absl/status/status.h"

namespace grpc {
class Status;
}

namespace deltafill {

grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that absl does not know becomes UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace deltafill

#endif  // DELTAFILL_PROTO_STATUS_CONVERSION_H_
