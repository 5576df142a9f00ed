// The client's side of the calls about parts. One attempt each; the caller retries.
#ifndef DELTAFILL_STATESTORE_REMOTE_PARTS_H_
#define DELTAFILL_STATESTORE_REMOTE_PARTS_H_

#include "absl/status/statusor.h"
#include "statestore/store.h"

namespace grpc {
template <class W>
class ClientWriter;
template <class R>
class ClientReader;
}  // namespace grpc

namespace deltafill {

namespace v1 {
class GetPartResponse;
class LeasePartsResponse;
class PutPartRequest;
class PutPartResponse;
}  // namespace v1

// Finishes the call; response is what the writer was opened with.
absl::StatusOr<PartReceipt> SendPart(grpc::ClientWriter<v1::PutPartRequest>* writer,
                                     const v1::PutPartResponse& response, std::string_view tenant,
                                     const PartHeader& header, LayerPayloads payloads);

// Finishes the call. Verifies the checksums again: UNAVAILABLE if the bytes were damaged on the
// way.
absl::StatusOr<Part> ReceivePart(grpc::ClientReader<v1::GetPartResponse>* reader);

// INTERNAL if the answer does not fit the question.
absl::StatusOr<std::vector<PartReceipt>> ReadLeasedParts(const v1::LeasePartsResponse& response,
                                                         std::span<const PartId> asked);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_REMOTE_PARTS_H_
