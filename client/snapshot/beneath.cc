#include "client/snapshot/beneath.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace deltafill::client {
namespace {

constexpr int kReadsMax = 3;
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
// Not blocking: opening a FIFO would wait for its writer.
constexpr int kFileFlags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('\0') == std::string_view::npos && name.find('/') == std::string_view::npos;
}

// Walks down to the directory of a path's last name.
OpenFile OpenParent(const OpenFile& tree, std::string_view path, std::string* last) {
  OpenFile at(fcntl(tree.get(), F_DUPFD_CLOEXEC, 0));
  for (int depth = 0; at.is_open() && depth <= kDepthMax; ++depth) {
    const size_t slash = path.find('/');
    const std::string name(path.substr(0, slash));
    if (!IsPlainName(name)) break;
    if (slash == std::string_view::npos) {
      *last = name;
      return at;
    }
    at = OpenFile(openat(at.get(), name.c_str(), kDirectoryFlags));
    path.remove_prefix(slash + 1);
  }
  return OpenFile();
}

std::string WhyNotRegular(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool SameVersion(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec &&
         a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

// False with errno set.
bool ReadAll(int descriptor, size_t bytes_max, std::string* bytes) {
  bytes->clear();
  char chunk[1 << 16];
  while (bytes->size() <= bytes_max) {
    const ssize_t count = read(descriptor, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    bytes->append(chunk, static_cast<size_t>(count));
  }
  return true;
}

std::string TooLarge(uint64_t bytes_max) {
  return absl::StrCat("larger than ", bytes_max, " bytes");
}

FileContents ErrnoOutcome() {
  if (errno == ELOOP) return {{}, "a symbolic link"};
  if (errno == ENOENT || errno == ENOTDIR) return {{}, "not there"};
  return {{}, std::strerror(errno)};
}

// One try; *again if it changed meanwhile.
FileContents ReadOnce(int parent, const std::string& name, uint64_t bytes_max,
                      const std::function<void()>& after_read, bool* again) {
  *again = false;
  struct stat seen {};
  // Looked at before it is opened: opening a device may do something.
  if (fstatat(parent, name.c_str(), &seen, AT_SYMLINK_NOFOLLOW) != 0) return ErrnoOutcome();
  if (!S_ISREG(seen.st_mode)) return {{}, WhyNotRegular(seen.st_mode)};
  const OpenFile file(openat(parent, name.c_str(), kFileFlags));
  if (!file.is_open()) return ErrnoOutcome();
  struct stat before {};
  if (fstat(file.get(), &before) != 0) return ErrnoOutcome();
  if (!S_ISREG(before.st_mode)) return {{}, WhyNotRegular(before.st_mode)};
  if (static_cast<uint64_t>(before.st_size) > bytes_max) return {{}, TooLarge(bytes_max), true};
  FileContents contents;
  if (!ReadAll(file.get(), bytes_max, &contents.bytes)) return ErrnoOutcome();
  if (after_read) after_read();
  struct stat after {};
  if (fstat(file.get(), &after) != 0) return ErrnoOutcome();
  const bool whole =
      SameVersion(before, after) && contents.bytes.size() == static_cast<uint64_t>(before.st_size);
  if (whole) return contents;
  *again = true;
  return {{}, "changes while it is read"};
}

EntryKind KindOf(mode_t mode) {
  if (S_ISREG(mode)) return EntryKind::kFile;
  return S_ISDIR(mode) ? EntryKind::kDirectory : EntryKind::kOther;
}

}  // namespace

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  if (this == &other) return *this;
  if (is_open()) close(descriptor_);
  descriptor_ = other.descriptor_;
  other.descriptor_ = -1;
  return *this;
}

OpenFile::~OpenFile() {
  if (is_open()) close(descriptor_);
}

absl::StatusOr<OpenFile> OpenTree(const std::string& directory) {
  OpenFile tree(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  if (tree.is_open()) return tree;
  return absl::InvalidArgumentError(absl::StrCat(directory, ": ", std::strerror(errno)));
}

OpenFile OpenDirectoryBeneath(const OpenFile& tree, std::string_view path) {
  if (path.empty()) return OpenFile(fcntl(tree.get(), F_DUPFD_CLOEXEC, 0));
  std::string last;
  const OpenFile parent = OpenParent(tree, path, &last);
  if (!parent.is_open()) return OpenFile();
  return OpenFile(openat(parent.get(), last.c_str(), kDirectoryFlags));
}

FileContents ReadBeneath(const OpenFile& tree, std::string_view path, uint64_t bytes_max,
                         const std::function<void()>& after_read) {
  if (path.size() > kPathBytesMax) {
    return {{}, absl::StrCat("its path is longer than ", kPathBytesMax, " bytes"), true};
  }
  std::string name;
  errno = 0;
  const OpenFile parent = OpenParent(tree, path, &name);
  if (!parent.is_open()) {
    // O_DIRECTORY wins over O_NOFOLLOW: a link in the way is ENOTDIR as well.
    return {{}, errno == ENOENT ? "not there" : "not beneath the tree without symbolic links"};
  }
  FileContents contents;
  bool again = true;
  for (int attempt = 0; again && attempt < kReadsMax; ++attempt) {
    contents = ReadOnce(parent.get(), name, bytes_max, after_read, &again);
  }
  return contents;
}

absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const OpenFile& directory,
                                                          size_t* entries) {
  // One of its own: closedir closes what it was given.
  const int own = openat(directory.get(), ".", kDirectoryFlags);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(own < 0 ? nullptr : fdopendir(own), &closedir);
  if (!stream) {
    const int error = errno;
    if (own >= 0) close(own);
    return absl::InvalidArgumentError(std::strerror(error));
  }
  std::vector<DirectoryEntry> found;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    if (!IsPlainName(entry->d_name)) continue;
    if (++*entries > kEntriesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kEntriesMax, " entries in the tree"));
    }
    struct stat seen {};
    // What is gone already is not there.
    if (fstatat(directory.get(), entry->d_name, &seen, AT_SYMLINK_NOFOLLOW) != 0) continue;
    DirectoryEntry each{entry->d_name, KindOf(seen.st_mode), ""};
    if (each.kind == EntryKind::kOther) each.left_out = WhyNotRegular(seen.st_mode);
    found.push_back(std::move(each));
  }
  if (errno != 0) return absl::InvalidArgumentError(std::strerror(errno));
  std::sort(found.begin(), found.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return found;
}

}  // namespace deltafill::client
