// NAME@REVISION as people write it: a commit's first digits, or a branch, tag or other revision of
// the git work tree that the snapshot is made of.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_VERSION_NAME_H_
#define DELTAFILL_CLIENT_SNAPSHOT_VERSION_NAME_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/options.h"
#include "client/snapshot/snapshot_calls.h"

namespace deltafill::client {

// The name that the service knows: NAME as it is, of NAME@REVISION the version of that commit.
// What has 7 or more hexadecimal digits is a commit's first; only if there is none, and for
// everything else, the remembered directory's git is asked. NOT_FOUND lists the versions there are.
absl::StatusOr<std::string> FindVersion(SnapshotCalls& calls, const ServerOptions& server,
                                        const std::string& name);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_VERSION_NAME_H_
