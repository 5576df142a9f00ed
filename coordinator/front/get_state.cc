// GetState: one state's description, verified if asked for.
#include "absl/strings/str_cat.h"
#include "coordinator/front/describe.h"
#include "coordinator/front/handle.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/state_access.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {

absl::Status GetState(FrontContext& context, const Call& call, const v1::GetStateRequest& request,
                      v1::StateDescription* response) {
  absl::StatusOr<PrefixRef> ref = DecodeStateReference(request.state(), "state");
  if (!ref.ok()) return ref.status();
  absl::StatusOr<TenantSalt> salt = context.salts.Get(call.tenant);
  if (!salt.ok()) return salt.status();
  absl::StatusOr<Manifest> manifest =
      FindState(context.store, call.tenant, *salt, *ref, context.engine.Models(), "state");
  if (!manifest.ok()) return manifest.status();
  DescribeState(*manifest, ref->tail.size(), response);
  if (!request.verify()) return absl::OkStatus();
  for (const PartRef& part : manifest->parts) {
    if (call.cancelled()) return absl::CancelledError("the caller is gone");
    const absl::StatusOr<Part> read = context.store.GetPart(part.id, {});
    if (absl::IsNotFound(read.status())) {
      return absl::DataLossError(absl::StrCat("state: part ", part.id.ToHex(), " is missing"));
    }
    if (!read.ok()) return read.status();
  }
  response->set_verified(true);
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
