// One create or update, from the tree to the service's answer.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_PUT_RUN_H_
#define DELTAFILL_CLIENT_SNAPSHOT_PUT_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/snapshot/composed_snapshot.h"
#include "client/snapshot/fetched_tokenizer.h"
#include "client/snapshot/remembered_directory.h"
#include "client/snapshot/snapshot_calls.h"

namespace deltafill::client {

struct PutAsk {
  std::string name;
  bool create = false;
  std::string order_from;
  bool no_resume = false;
  bool reorder = false;
  bool keep_tokens = false;     // in the report
  bool skip_unchanged = false;  // send nothing if no file changed and the commit is kept already
};

struct PutReport {
  v1::PutSnapshotDone done;
  bool skipped = false;  // nothing was sent; done is empty
  std::string commit;    // kept as a version; "" if the tree is none's
  uint32_t changed_files = 0;
  std::string first_changed;
  std::optional<OrderProposal> proposal;
  std::vector<LeftOut> left_out;
  std::vector<uint32_t> tokens;
  double elapsed_s = 0.0;
};

// An update that somebody else's overtakes is made again on theirs, at most 3 times.
absl::StatusOr<PutReport> PutTree(SnapshotCalls& calls, FetchedTokenizer& tokenizer,
                                  const PutAsk& ask, const RememberedDirectory& settings);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_PUT_RUN_H_
