// Writes a safetensors file as a stream: the header first, then each tensor's bytes in order.
#ifndef DELTAFILL_WORKER_MODEL_SAFETENSORS_WRITER_H_
#define DELTAFILL_WORKER_MODEL_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deltafill::worker {

struct TensorPlan {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", ...
  std::vector<int64_t> shape;
};

// The file appears under its name only when Finish has returned OK (rename); until then it is
// "<path>.partial", which the destructor removes. The bytes of the file are a function of plan,
// metadata and contents only. Not thread-safe.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT for an unknown dtype, a bad shape or a name used twice; UNAVAILABLE or
  // PERMISSION_DENIED naming the path if the file cannot be made.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<TensorPlan>& tensors,
      const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The next bytes of the payload, in pieces of any size. OUT_OF_RANGE past the planned total.
  absl::Status Append(std::span<const std::byte> bytes);

  // FAILED_PRECONDITION if bytes are missing. Synced to disk before the rename.
  absl::Status Finish();

 private:
  SafetensorsWriter() = default;
  absl::Status WriteFully(const void* from, size_t bytes);

  std::string path_;
  std::string partial_path_;
  int descriptor_ = -1;
  uint64_t remaining_bytes_ = 0;
};

// Writes a whole small file the same way: under another name, synced, then renamed.
absl::Status WriteFileAtomically(const std::string& path, const std::string& contents);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_SAFETENSORS_WRITER_H_
