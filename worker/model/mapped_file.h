// A file mapped for reading.
#ifndef DELTAFILL_WORKER_MODEL_MAPPED_FILE_H_
#define DELTAFILL_WORKER_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace deltafill::worker {

// Immutable and thread-safe. The file must not be shortened while it is mapped.
class MappedFile {
 public:
  // NOT_FOUND or UNAVAILABLE naming the path; INVALID_ARGUMENT if it is not a regular file.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {start_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(start_), size_}; }
  // Since the epoch, as the file system has it.
  int64_t modified_ns() const { return modified_ns_; }

 private:
  MappedFile() = default;

  std::string path_;
  const std::byte* start_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_MAPPED_FILE_H_
