#include "worker/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deltafill::worker {
namespace {

absl::Status SystemFault(const std::string& path, const char* step) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", step, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return SystemFault(path, "open");
  std::unique_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const absl::Status fault = SystemFault(path, "stat");
    ::close(descriptor);
    return fault;
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const size_t size = static_cast<size_t>(status.st_size);
  file->modified_ns_ =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + int64_t{status.st_mtim.tv_nsec};
  if (size > 0) {  // an empty file cannot be mapped and has nothing to read
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (start == MAP_FAILED) {
      const absl::Status fault = SystemFault(path, "mmap");
      ::close(descriptor);
      return fault;
    }
    file->start_ = static_cast<const std::byte*>(start);
    file->size_ = size;
  }
  ::close(descriptor);
  return file;
}

MappedFile::~MappedFile() {
  if (start_ != nullptr) ::munmap(const_cast<std::byte*>(start_), size_);
}

}  // namespace deltafill::worker
