// update --watch: an update after each change that settled, until SIGINT or SIGTERM.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_WATCH_LOOP_H_
#define DELTAFILL_CLIENT_SNAPSHOT_WATCH_LOOP_H_

#include <functional>

#include "client/snapshot/put_run.h"

namespace deltafill::client {

// Before the process starts its first thread.
void PrepareWatch();

// Updates once, then after changes. A service that is away is tried again. Returns the exit code: 0
// once interrupted (a running update is cancelled), 1 if the tree cannot be watched or the first
// update fails.
int WatchTree(SnapshotCalls& calls, const PutAsk& ask, const RememberedDirectory& settings,
              double settle_s, const std::function<void(const PutReport&)>& report);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_WATCH_LOOP_H_
