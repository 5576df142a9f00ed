// safetensors: any bytes give tensors inside the file that cover it, or DATA_LOSS. The first byte
// is the header's length, so that the fuzzer need not find eight of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "worker/model/safetensors.h"

namespace {

void Check(const std::string& file) {
  const auto header = deltafill::worker::ParseSafetensors(file, "fuzzed");
  if (!header.ok()) {
    if (header.status().code() != absl::StatusCode::kDataLoss) std::abort();
    return;
  }
  uint64_t covered = 0;
  for (const deltafill::worker::TensorEntry& entry : header->tensors) {
    if (entry.begin > entry.end || entry.end > file.size()) std::abort();
    const auto elements = deltafill::worker::ElementCount(entry.shape);
    if (!elements.has_value() ||
        *elements * deltafill::worker::TensorElementBytes(entry.dtype) != entry.end - entry.begin) {
      std::abort();
    }
    covered += entry.end - entry.begin;
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (covered + header_bytes + 8 != file.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  Check(std::string(reinterpret_cast<const char*>(bytes), size));
  if (size == 0) return 0;
  const uint64_t length = std::min<uint64_t>(size_t{2} * bytes[0], size - 1);
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file.append(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  Check(file);
  return 0;
}
