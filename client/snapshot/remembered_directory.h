// Which directory a snapshot is made of. The service does not know; this side remembers it in
// $DELTAFILL_STATE_DIR, or $XDG_STATE_HOME/deltafill, or ~/.local/state/deltafill: a file
// snapshots/NAME-HASH.json, HASH being of server, tenant and name.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_REMEMBERED_DIRECTORY_H_
#define DELTAFILL_CLIENT_SNAPSHOT_REMEMBERED_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/options.h"
#include "client/snapshot/source_tree.h"

namespace deltafill::client {

struct RememberedDirectory {
  std::string directory;  // absolute
  TreeOptions tree;
  std::string model;
  uint64_t checkpoint_bytes_max = 0;
  uint32_t versions_max = 0;
};

// Atomically. FAILED_PRECONDITION naming the file.
absl::Status Remember(const ServerOptions& server, const std::string& name,
                      const RememberedDirectory& remembered);
// NOT_FOUND if nothing is remembered of the name; FAILED_PRECONDITION if the file is malformed.
absl::StatusOr<RememberedDirectory> Recall(const ServerOptions& server, const std::string& name);
// No error if there is nothing.
void Forget(const ServerOptions& server, const std::string& name);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_REMEMBERED_DIRECTORY_H_
