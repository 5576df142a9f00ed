// The operations of SnapshotService, without gRPC: snapshot_service.cc calls them on its threads.
// proto/snapshot.proto says what each does and which errors it has.
#ifndef DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_OPERATIONS_H_
#define DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_OPERATIONS_H_

#include <atomic>

#include "absl/status/status.h"
#include "coordinator/front/operations.h"
#include "coordinator/snapshots/snapshot_limits.h"
#include "coordinator/snapshots/snapshot_upload.h"

namespace deltafill::v1 {
class DeleteSnapshotRequest;
class DeleteSnapshotResponse;
class GetSnapshotRequest;
class GetTokenizerRequest;
class ListSnapshotsRequest;
class ListSnapshotsResponse;
class PutSnapshotEvent;
class SnapshotDescription;
class TokenizerDescription;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// Of the snapshots' last long enough prefill; what checkpoints are worth depends on it.
using MeasuredSpeed = std::atomic<double>;  // seconds a token

absl::Status GetTokenizer(FrontContext& context, const v1::GetTokenizerRequest& request,
                          v1::TokenizerDescription* response);
absl::Status PutSnapshot(FrontContext& context, const Call& call, MeasuredSpeed& speed,
                         const ReceiveRequest& receive,
                         const SendEvent<v1::PutSnapshotEvent>& send);
absl::Status GetSnapshot(FrontContext& context, const Call& call,
                         const v1::GetSnapshotRequest& request, v1::SnapshotDescription* response);
absl::Status ListSnapshots(FrontContext& context, const Call& call,
                           const v1::ListSnapshotsRequest& request,
                           v1::ListSnapshotsResponse* response);
absl::Status DeleteSnapshot(FrontContext& context, const Call& call,
                            const v1::DeleteSnapshotRequest& request,
                            v1::DeleteSnapshotResponse* response);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_OPERATIONS_H_
