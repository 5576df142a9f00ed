// ListStates: the tenant's states, a page at a time.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "coordinator/front/describe.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

// The store's page names are bytes; the API's are text.
bool FromHex(const std::string& text, std::string* bytes) {
  if (text.size() % 2 != 0) return false;
  for (char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  *bytes = absl::HexStringToBytes(text);
  return true;
}

}  // namespace

absl::Status ListStates(FrontContext& context, const Call& call,
                        const v1::ListStatesRequest& request, v1::ListStatesResponse* response) {
  if (absl::Status status = CheckListStatesRequest(request); !status.ok()) return status;
  const size_t limit = request.limit() == 0 ? kListLimitDefault : request.limit();
  std::string from;
  if (!FromHex(request.page(), &from)) {
    return absl::InvalidArgumentError("page: not a response's next_page");
  }
  absl::StatusOr<ManifestPage> page = context.store.List(call.tenant, from, limit);
  if (!page.ok()) return page.status();
  for (const Manifest& manifest : page->manifests) {
    DescribeState(manifest, 0, response->add_states());
  }
  response->set_next_page(absl::BytesToHexString(page->next_page));
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
