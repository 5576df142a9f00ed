// A source tree as a snapshot takes it: the text files that are tracked (or, in a plain directory,
// there) and not ignored, read safely, with what was left out and why.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_SOURCE_TREE_H_
#define DELTAFILL_CLIENT_SNAPSHOT_SOURCE_TREE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/snapshot/git_tree.h"

namespace deltafill::client {

inline constexpr uint64_t kFileBytesDefault = uint64_t{1} << 20;
inline constexpr uint64_t kTreeBytesMax = uint64_t{64} << 20;  // of text
inline constexpr size_t kTreeFilesMax = 20'000;                // as the service's limit

struct TreeOptions {
  uint64_t file_bytes_max = kFileBytesDefault;
  bool plain = false;  // do not ask git
};

struct SourceFile {
  std::string path;  // quoted, see QuotePath
  std::string contents;
};

struct LeftOut {
  std::string path;  // quoted
  std::string reason;
};

struct SourceTree {
  std::vector<SourceFile> files;  // ascending by path
  std::vector<LeftOut> left_out;  // ascending by path
  // Git's commit if the files are those of its tree; "" otherwise. What was left out for its size
  // or kind is not compared.
  std::string commit;
  std::unique_ptr<GitTree> git;  // nullptr for a plain directory
};

// INVALID_ARGUMENT naming the directory, or the limit on files and bytes.
absl::StatusOr<SourceTree> ReadSourceTree(const std::string& directory, const TreeOptions& options);

// What to watch for changes.
struct SourceDirectories {
  std::vector<std::string> paths;  // those with files that ReadSourceTree would look at
  std::string git_directory;       // as GitTree's; "" for a plain directory
};

absl::StatusOr<SourceDirectories> ListSourceDirectories(const std::string& directory,
                                                        const TreeOptions& options);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_SOURCE_TREE_H_
