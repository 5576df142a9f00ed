#include "kernels/cpu/param_checks.h"

#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {

Status CheckFloats(const std::string& field, const void* pointer) {
  DELTAFILL_CHECK(CheckNotNull(field, pointer));
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(float) == 0) return {};
  return InvalidArgument(field + ": is not aligned to 4 bytes");
}

// Rows that an operator reads or writes. No rows: nothing but the dtype is looked at.
Status CheckRows(const char* field, const ConstRows& rows, int64_t count, int64_t width) {
  if (!IsKnown(rows.dtype)) {
    return InvalidArgument(std::string(field) + ".dtype: " +
                           std::to_string(static_cast<int>(rows.dtype)) + " is not a DType");
  }
  if (rows.dtype != DType::kF32) {
    return {StatusCode::kUnsupported,
            std::string(field) + ".dtype: the CPU backend's activations are fp32"};
  }
  if (count == 0) return {};
  if (rows.data == nullptr) return InvalidArgument(std::string(field) + ".data: is null");
  if (reinterpret_cast<uintptr_t>(rows.data) % alignof(float) != 0) {
    return InvalidArgument(std::string(field) + ".data: is not aligned to 4 bytes");
  }
  if (rows.row_stride < width) {
    return InvalidArgument(std::string(field) + ".row_stride: " + std::to_string(rows.row_stride) +
                           " is less than the width " + std::to_string(width));
  }
  return {};
}

Status CheckWeight(const std::string& field, const Weight* weight, const CpuWeight** out) {
  DELTAFILL_CHECK(CheckNotNull(field, weight));
  *out = dynamic_cast<const CpuWeight*>(weight);
  if (*out != nullptr) return {};
  return InvalidArgument(field + ": was not made by a CPU backend");
}

Status CheckOffsets(SequenceOffsets offsets) {
  if (offsets.empty()) return InvalidArgument("offsets: is empty; must have sequences + 1 entries");
  if (offsets.front() != 0) {
    return InvalidArgument("offsets[0]: " + std::to_string(offsets.front()) + " is not 0");
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] >= offsets[i - 1]) continue;
    return InvalidArgument("offsets[" + std::to_string(i) + "]: " + std::to_string(offsets[i]) +
                           " is less than the entry before, " + std::to_string(offsets[i - 1]));
  }
  return CheckRange("offsets.back()", offsets.back(), 0, kRowsMax);
}

}  // namespace deltafill::kernels::cpu
