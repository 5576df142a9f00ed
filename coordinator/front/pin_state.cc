// PinState and UnpinState: whether a state may be evicted.
#include "coordinator/front/describe.h"
#include "coordinator/front/handle.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/state_access.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {

absl::Status SetStatePinned(FrontContext& context, const Call& call,
                            const v1::StateRequest& request, bool pinned,
                            v1::StateDescription* response) {
  absl::StatusOr<PrefixRef> ref = DecodeStateReference(request.state(), "state");
  if (!ref.ok()) return ref.status();
  if (ref->zero) return ZeroIsNotStored();
  const absl::Status status = context.store.SetPinned(call.tenant, ref->state, pinned);
  if (absl::IsNotFound(status)) return StateNotFound("state");
  if (!status.ok()) return status;
  absl::StatusOr<Manifest> manifest = context.store.GetManifest(call.tenant, ref->state);
  if (absl::IsNotFound(manifest.status())) return StateNotFound("state");
  if (!manifest.ok()) return manifest.status();
  DescribeState(*manifest, ref->tail.size(), response);
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
