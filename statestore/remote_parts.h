// The client's side of the two streaming calls. One attempt each; the caller retries.
#ifndef DELTAFILL_STATESTORE_REMOTE_PARTS_H_
#define DELTAFILL_STATESTORE_REMOTE_PARTS_H_

#include <grpcpp/client_context.h>

#include "absl/status/statusor.h"
#include "proto/statestore.grpc.pb.h"
#include "statestore/store.h"

namespace deltafill {

absl::StatusOr<PartReceipt> PutRemotePart(v1::StateStoreService::Stub* stub,
                                          grpc::ClientContext* context, std::string_view tenant,
                                          const PartHeader& header, LayerPayloads payloads);

// Verifies the checksums again: UNAVAILABLE if the bytes were damaged on the way.
absl::StatusOr<Part> GetRemotePart(v1::StateStoreService::Stub* stub, grpc::ClientContext* context,
                                   const PartId& id, std::span<const uint32_t> layers);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_REMOTE_PARTS_H_
