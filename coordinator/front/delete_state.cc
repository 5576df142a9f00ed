// DeleteState: forgets a state.
#include "coordinator/front/handle.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/state_access.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {

absl::Status DeleteState(FrontContext& context, const Call& call, const v1::StateRequest& request,
                         v1::DeleteStateResponse*) {
  absl::StatusOr<PrefixRef> ref = DecodeStateReference(request.state(), "state");
  if (!ref.ok()) return ref.status();
  if (ref->zero) return ZeroIsNotStored();
  const absl::Status status = context.store.Delete(call.tenant, ref->state);
  return absl::IsNotFound(status) ? StateNotFound("state") : status;
}

}  // namespace deltafill::coordinator
