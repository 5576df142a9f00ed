#include "worker/model/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "worker/model/safetensors.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

absl::Status WriteFault(const std::string& path, const char* step) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", step, ": ", std::strerror(error));
  if (error == EACCES || error == EROFS || error == EPERM) {
    return absl::PermissionDeniedError(message);
  }
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

// Strings as the header wants them; bytes that are not UTF-8 are replaced.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The header's JSON, padded with spaces so that the payload starts on 8 bytes.
absl::StatusOr<std::string> MakeHeader(const std::vector<TensorPlan>& tensors,
                                       const std::map<std::string, std::string>& metadata,
                                       uint64_t* payload_bytes) {
  std::string json = "{";
  const char* separator = "";
  if (!metadata.empty()) {
    absl::StrAppend(&json, "\"__metadata__\":{");
    for (const auto& [key, value] : metadata) {
      absl::StrAppend(&json, separator, Quoted(key), ":", Quoted(value));
      separator = ",";
    }
    absl::StrAppend(&json, "}");
  }
  uint64_t offset = 0;
  std::set<std::string> names;
  for (const TensorPlan& tensor : tensors) {
    const size_t element_bytes = TensorElementBytes(tensor.dtype);
    const auto elements = ElementCount(tensor.shape);
    if (element_bytes == 0 || !elements.has_value() || *elements > (uint64_t{1} << 58) ||
        tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "': bad dtype, shape or name"));
    }
    absl::StrAppend(&json, separator, Quoted(tensor.name), ":{\"dtype\":\"", tensor.dtype,
                    "\",\"shape\":[");
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",", tensor.shape[i]);
    }
    absl::StrAppend(&json, "],\"data_offsets\":[", offset, ",", offset + *elements * element_bytes,
                    "]}");
    offset += *elements * element_bytes;
    separator = ",";
  }
  json += "}";
  while (json.size() % 8 != 0) json += ' ';
  *payload_bytes = offset;
  return json;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorPlan>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  DELTAFILL_TRY_ASSIGN(header, MakeHeader(tensors, metadata, &writer->remaining_bytes_));
  writer->path_ = path;
  writer->partial_path_ = path + ".partial";
  writer->descriptor_ =
      ::open(writer->partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer->descriptor_ < 0) return WriteFault(writer->partial_path_, "open");
  const uint64_t header_bytes = header.size();
  DELTAFILL_TRY(writer->WriteFully(&header_bytes, sizeof(header_bytes)));
  DELTAFILL_TRY(writer->WriteFully(header.data(), header.size()));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_path_.c_str());
}

absl::Status SafetensorsWriter::WriteFully(const void* from, size_t bytes) {
  const char* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return WriteFault(partial_path_, "write");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > remaining_bytes_) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": ", bytes.size() - remaining_bytes_,
                                              " bytes more than the planned tensors"));
  }
  remaining_bytes_ -= bytes.size();
  return WriteFully(bytes.data(), bytes.size());
}

absl::Status SafetensorsWriter::Finish() {
  if (descriptor_ < 0 || remaining_bytes_ != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": ", remaining_bytes_, " bytes of tensors are missing"));
  }
  if (::fsync(descriptor_) != 0) return WriteFault(partial_path_, "fsync");
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) return WriteFault(path_, "rename");
  ::close(descriptor_);
  descriptor_ = -1;
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, const std::string& contents) {
  // Processes that start together may write the same file; each writes its own and the last one
  // stays.
  static std::atomic<int> written_files{0};
  const std::string partial = absl::StrCat(path, ".partial.", ::getpid(), ".", ++written_files);
  std::FILE* file = std::fopen(partial.c_str(), "wbe");
  if (file == nullptr) return WriteFault(partial, "open");
  const bool written = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const bool flushed = std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  absl::Status fault = WriteFault(partial, "write");
  std::fclose(file);
  if (written && flushed) {
    if (std::rename(partial.c_str(), path.c_str()) == 0) return absl::OkStatus();
    fault = WriteFault(path, "rename");
  }
  ::unlink(partial.c_str());
  return fault;
}

}  // namespace deltafill::worker
