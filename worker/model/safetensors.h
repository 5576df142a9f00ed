// The safetensors format: an 8-byte little-endian header length, a JSON header, and the tensors'
// bytes back to back (https://github.com/huggingface/safetensors, "Format").
#ifndef DELTAFILL_WORKER_MODEL_SAFETENSORS_H_
#define DELTAFILL_WORKER_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace deltafill::worker {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = uint64_t{100} << 20;
inline constexpr size_t kTensorNameBytesMax = 512;
inline constexpr size_t kTensorDimsMax = 8;

struct TensorEntry {
  std::string name;
  std::string dtype;           // as the file spells it: "F32", "BF16", ...
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;          // in the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Bytes of one element; 0 for a dtype this reader does not know.
size_t TensorElementBytes(std::string_view dtype);

// The operators' name for a dtype they can load, and back.
std::optional<kernels::DType> KernelDType(std::string_view dtype);
std::string_view TensorDTypeName(kernels::DType dtype);

// Product of the dims; nullopt past 2^62 or for a negative dim.
std::optional<uint64_t> ElementCount(std::span<const int64_t> shape);

// Checks everything the format promises: the length, the JSON, no name twice, dtype, shape and
// bytes agreeing, and tensors that cover the rest of the file without gap or overlap. DATA_LOSS
// naming `file_name` and the tensor. Never reads outside `file`.
absl::StatusOr<SafetensorsHeader> ParseSafetensors(std::string_view file,
                                                   const std::string& file_name);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_SAFETENSORS_H_
