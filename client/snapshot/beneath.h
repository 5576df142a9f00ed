// Reading files beneath one directory and nowhere else: every step is relative to an open
// directory, follows no symbolic link, opens nothing that could block, and has a limit. What a tree
// holds is not to be trusted.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_BENEATH_H_
#define DELTAFILL_CLIENT_SNAPSHOT_BENEATH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::client {

inline constexpr int kDepthMax = 64;              // of directories
inline constexpr size_t kPathBytesMax = 1024;     // of a path beneath the directory
inline constexpr size_t kEntriesMax = 1'000'000;  // that a walk looks at

// Owns a file descriptor.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(OpenFile&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();
  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// The directory that the user names; symbolic links on the way to it are followed.
// INVALID_ARGUMENT naming it.
absl::StatusOr<OpenFile> OpenTree(const std::string& directory);

// A directory beneath; "" is the tree itself. Not open if it is not there or not a directory.
OpenFile OpenDirectoryBeneath(const OpenFile& tree, std::string_view path);

struct FileContents {
  std::string bytes;
  std::string left_out;   // why it could not be read; "" if it was
  bool too_long = false;  // the reason is its size or the length of its path
};

// Reads a regular file whole. A file that changes meanwhile is read again, at most 3 times. Files
// longer than bytes_max are not read. after_read is for tests: called before the last check.
FileContents ReadBeneath(const OpenFile& tree, std::string_view path, uint64_t bytes_max,
                         const std::function<void()>& after_read = {});

enum class EntryKind { kFile, kDirectory, kOther };

struct DirectoryEntry {
  std::string name;
  EntryKind kind = EntryKind::kOther;
  std::string left_out;  // of kOther: why
};

// The entries of an open directory, ascending by name, without "." and ".."; adds their number to
// *entries. INVALID_ARGUMENT past kEntriesMax or if it cannot be read.
absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const OpenFile& directory,
                                                          size_t* entries);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_BENEATH_H_
