// ListStates: the tenant's states, a page at a time.
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "coordinator/front/describe.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/lower_hex.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {

absl::Status ListStates(FrontContext& context, const Call& call,
                        const v1::ListStatesRequest& request, v1::ListStatesResponse* response) {
  if (absl::Status status = CheckListStatesRequest(request); !status.ok()) return status;
  const size_t limit = request.limit() == 0 ? kListLimitDefault : request.limit();
  // The store's page names are bytes; the API's are text.
  const std::optional<std::string> from = FromLowerHex(request.page());
  if (!from) return absl::InvalidArgumentError("page: not a response's next_page");
  absl::StatusOr<ManifestPage> page = context.store.List(call.tenant, *from, limit);
  if (!page.ok()) return page.status();
  for (const Manifest& manifest : page->manifests) {
    DescribeState(manifest, 0, response->add_states());
  }
  response->set_next_page(absl::BytesToHexString(page->next_page));
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
