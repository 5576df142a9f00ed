// Waits for changes in a source tree (inotify): until some came and no more follow for a while.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_TREE_WATCH_H_
#define DELTAFILL_CLIENT_SNAPSHOT_TREE_WATCH_H_

#include <chrono>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/snapshot/beneath.h"
#include "client/snapshot/source_tree.h"

namespace deltafill::client {

class TreeWatch {
 public:
  // FAILED_PRECONDITION if the system gives no watches (fs.inotify.max_user_watches).
  static absl::StatusOr<TreeWatch> Open(const std::string& directory, const TreeOptions& options);

  // Watches directories that are new. Called before the tree is read: a change after that wakes the
  // next Wait.
  absl::Status Refresh();

  enum class Event { kChanged, kStopped, kTimeout };
  // kChanged: something changed, and then nothing for `settle` (or changes went on for ten times
  // that, and at least 10 s). kStopped: stop_descriptor became readable. kTimeout: nothing changed
  // for `timeout`.
  Event Wait(std::chrono::milliseconds settle, std::chrono::milliseconds timeout,
             int stop_descriptor);

 private:
  TreeWatch(std::string directory, TreeOptions options, OpenFile events, OpenFile tree)
      : directory_(std::move(directory)),
        options_(options),
        events_(std::move(events)),
        tree_(std::move(tree)) {}
  absl::Status Add(const OpenFile& directory, const std::string& path);
  // Whether something happened that matters.
  bool TakeEvents();

  std::string directory_;
  TreeOptions options_;
  OpenFile events_;
  OpenFile tree_;
  std::map<int, std::string> paths_;  // by watch
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_TREE_WATCH_H_
