// What git knows of a directory: which files are tracked, which commit is checked out, what changed
// how often. Only metadata and objects are read here; files are read by beneath.h. Through libgit2.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_GIT_TREE_H_
#define DELTAFILL_CLIENT_SNAPSHOT_GIT_TREE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::client {

inline constexpr size_t kHistoryCommitsMax = 1000;

struct TrackedFile {
  std::string path;      // relative to the directory
  std::string left_out;  // "a symbolic link", "a submodule"; "" for a file
};

class GitTree {
 public:
  // None if the directory is in no work tree, or none of its files is tracked. FAILED_PRECONDITION
  // if libgit2 refuses the repository (another user's, for instance), with its reason.
  static absl::StatusOr<std::optional<GitTree>> Open(const std::string& directory);
  GitTree(GitTree&&) noexcept;
  GitTree& operator=(GitTree&&) noexcept;
  ~GitTree();

  // Ascending by path.
  const std::vector<TrackedFile>& tracked() const { return tracked_; }
  // Where index and HEAD are: what changes when something is added, committed or checked out.
  const std::string& git_directory() const { return git_directory_; }

  // 40 or 64 hexadecimal digits; "" if there is no commit yet.
  std::string HeadCommit() const;
  // The commit that a branch, tag or other revision (git's words) means. NOT_FOUND if there is none
  // or it means no commit.
  absl::StatusOr<std::string> CommitOf(const std::string& revision) const;
  // The blobs of HEAD's tree beneath the directory: path to object id.
  absl::StatusOr<std::map<std::string, std::string>> HeadBlobs() const;
  // The object id that contents would have as a blob.
  static std::string BlobId(std::string_view contents);

  // The files each commit changed, the newest commit first: along first parents from HEAD, at most
  // kHistoryCommitsMax. Paths as in tracked(), those that are no longer there included.
  absl::StatusOr<std::vector<std::vector<std::string>>> ChangeHistory() const;

 private:
  struct Handles;
  explicit GitTree(std::unique_ptr<Handles> handles);
  absl::Status ReadIndex();
  // The path relative to the directory; none if it is elsewhere.
  std::optional<std::string> Beneath(std::string_view path) const;

  std::unique_ptr<Handles> handles_;
  std::string prefix_;  // of the directory in the work tree: "" or with a slash at the end
  std::string git_directory_;
  std::vector<TrackedFile> tracked_;
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_GIT_TREE_H_
