// Lookup: the deepest stored state of a prompt; nothing is computed.
#include "coordinator/front/keyed_prompt.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/prefix_lookup.h"
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {

absl::Status Lookup(FrontContext& context, const Call& call, const v1::LookupRequest& request,
                    v1::LookupResponse* response) {
  if (absl::Status status = CheckLookupRequest(request); !status.ok()) return status;
  const std::vector<ServedModel> served = context.engine.Models();
  absl::StatusOr<ServedModel> model = ChooseModel(served, request.model());
  if (!model.ok()) return model.status();
  absl::StatusOr<std::vector<uint32_t>> tokens =
      ReadPrompt(request.prompt(), *model, context.tokenizers);
  if (!tokens.ok()) return tokens.status();
  if (absl::Status status = CheckPositions(tokens->size(), 0, *model); !status.ok()) return status;
  absl::StatusOr<TenantSalt> salt = context.salts.Get(call.tenant);
  if (!salt.ok()) return salt.status();
  const KeyedPrompt prompt =
      KeyWholePrompt(call.tenant, *std::move(model), *salt, *std::move(tokens));
  absl::StatusOr<PrefixHit> hit = FindPrefix(context.store, prompt, /*verify=*/true, served);
  if (!hit.ok()) return hit.status();
  const uint64_t boundary = hit->start.boundary;
  response->set_tokens(prompt.TokenCount());
  response->set_boundary(boundary);
  if (boundary > 0) response->set_state(prompt.HandleAt(boundary, boundary));
  response->set_miss_reason(hit->miss_reason);
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
