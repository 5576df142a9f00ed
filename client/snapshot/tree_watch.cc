#include "client/snapshot/tree_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace deltafill::client {
namespace {

constexpr uint32_t kChanges = IN_CLOSE_WRITE | IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                              IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr std::chrono::seconds kUnrestMin{10};
constexpr int kUnrestSettles = 10;

// Git's own directory: only what a commit, a checkout or an added file changes there.
constexpr char kGitPath[] = "\0git";

bool IsOfInterest(const std::string& directory, const inotify_event& event) {
  if (directory[0] != '\0' || directory.empty()) return true;
  const std::string_view name = event.len > 0 ? event.name : "";
  return name == "HEAD" || name == "index";
}

}  // namespace

absl::StatusOr<TreeWatch> TreeWatch::Open(const std::string& directory,
                                          const TreeOptions& options) {
  absl::StatusOr<OpenFile> tree = OpenTree(directory);
  if (!tree.ok()) return tree.status();
  OpenFile events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events.is_open()) {
    return absl::FailedPreconditionError(absl::StrCat("inotify: ", std::strerror(errno)));
  }
  return TreeWatch(directory, options, std::move(events), *std::move(tree));
}

absl::Status TreeWatch::Add(const OpenFile& directory, const std::string& path) {
  // By its descriptor, so that no symbolic link can lead elsewhere.
  const std::string name = absl::StrCat("/proc/self/fd/", directory.get());
  const int watch = inotify_add_watch(events_.get(), name.c_str(), kChanges);
  if (watch < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("watching ", path.empty() ? directory_ : path, ": ", std::strerror(errno),
                     errno == ENOSPC ? " (raise fs.inotify.max_user_watches)" : ""));
  }
  paths_[watch] = path;
  return absl::OkStatus();
}

absl::Status TreeWatch::Refresh() {
  const absl::StatusOr<SourceDirectories> directories = ListSourceDirectories(directory_, options_);
  if (!directories.ok()) return directories.status();
  for (const std::string& path : directories->paths) {
    const OpenFile directory = OpenDirectoryBeneath(tree_, path);
    if (!directory.is_open()) continue;  // gone meanwhile
    if (absl::Status status = Add(directory, path); !status.ok()) return status;
  }
  if (directories->git_directory.empty()) return absl::OkStatus();
  const absl::StatusOr<OpenFile> git_directory = OpenTree(directories->git_directory);
  if (!git_directory.ok()) return absl::OkStatus();
  return Add(*git_directory, std::string(kGitPath, sizeof(kGitPath) - 1));
}

bool TreeWatch::TakeEvents() {
  alignas(inotify_event) char buffer[1 << 14];
  bool changed = false;
  for (;;) {
    const ssize_t count = read(events_.get(), buffer, sizeof(buffer));
    if (count <= 0) return changed;
    for (ssize_t at = 0; at < count;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
      const auto found = paths_.find(event.wd);
      // An overflow has no watch; something was lost, so something changed.
      if (found == paths_.end()) {
        changed = changed || (event.mask & IN_Q_OVERFLOW) != 0;
      } else if ((event.mask & IN_IGNORED) != 0) {
        paths_.erase(found);
      } else {
        changed = changed || IsOfInterest(found->second, event);
      }
      at += static_cast<ssize_t>(sizeof(inotify_event) + event.len);
    }
  }
}

TreeWatch::Event TreeWatch::Wait(std::chrono::milliseconds settle,
                                 std::chrono::milliseconds timeout, int stop_descriptor) {
  using Clock = std::chrono::steady_clock;
  const auto milliseconds_to = [](Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  };
  const Clock::time_point give_up = Clock::now() + timeout;
  std::optional<Clock::time_point> quiet_at, latest_at;
  for (;;) {
    const Clock::time_point end = quiet_at ? std::min(*quiet_at, *latest_at) : give_up;
    pollfd waits[2] = {{events_.get(), POLLIN, 0}, {stop_descriptor, POLLIN, 0}};
    const int ready = poll(waits, 2, milliseconds_to(end));
    if (ready < 0 && errno != EINTR) return Event::kStopped;
    if (ready > 0 && waits[1].revents != 0) return Event::kStopped;
    if (ready > 0 && TakeEvents()) {
      quiet_at = Clock::now() + settle;
      if (!latest_at) {
        latest_at =
            Clock::now() + std::max<std::chrono::milliseconds>(kUnrestSettles * settle, kUnrestMin);
      }
    }
    if (Clock::now() < end) continue;
    return quiet_at ? Event::kChanged : Event::kTimeout;
  }
}

}  // namespace deltafill::client
