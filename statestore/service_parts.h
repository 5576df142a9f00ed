// The service's calls about parts: in, out, and leased once more.
#ifndef DELTAFILL_STATESTORE_SERVICE_PARTS_H_
#define DELTAFILL_STATESTORE_SERVICE_PARTS_H_

#include <string>

#include "absl/status/status.h"
#include "statestore/byte_gate.h"
#include "statestore/store.h"

namespace grpc {
template <class R>
class ServerReader;
template <class W>
class ServerWriter;
}  // namespace grpc

namespace deltafill {

namespace v1 {
class GetPartRequest;
class GetPartResponse;
class LeasePartsRequest;
class LeasePartsResponse;
class PutPartRequest;
class PutPartResponse;
}  // namespace v1

// Thread-safe. The store is not owned.
class PartCalls {
 public:
  explicit PartCalls(StateStore* store);

  absl::Status Put(grpc::ServerReader<v1::PutPartRequest>* reader, v1::PutPartResponse* response);
  absl::Status Get(const v1::GetPartRequest& request,
                   grpc::ServerWriter<v1::GetPartResponse>* writer);
  absl::Status Lease(const v1::LeasePartsRequest& request, v1::LeasePartsResponse* response);

 private:
  absl::Status PutInside(const std::string& tenant, const DecodedPart& part,
                         grpc::ServerReader<v1::PutPartRequest>* reader,
                         v1::PutPartResponse* response);

  StateStore* const store_;
  ByteGate payloads_in_flight_;
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_SERVICE_PARTS_H_
