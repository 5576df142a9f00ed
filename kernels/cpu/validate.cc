#include "kernels/cpu/validate.h"

#include "kernels/cpu/weight.h"

namespace deltafill::kernels::cpu {
namespace {

// Runs `check`, a Status, and returns it from the enclosing function unless OK.
#define DELTAFILL_CHECK(check)                                \
  do {                                                        \
    if (Status status = (check); !status.ok()) return status; \
  } while (false)

Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(std::string(field) + ": " + std::to_string(value) + " is not in [" +
                         std::to_string(low) + ", " + std::to_string(high) + "]");
}

Status CheckNotNull(const char* field, const void* pointer) {
  if (pointer != nullptr) return {};
  return InvalidArgument(std::string(field) + ": is null");
}

bool IsKnown(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
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

Status CheckWeight(const char* field, const Weight* weight, const CpuWeight** out) {
  DELTAFILL_CHECK(CheckNotNull(field, weight));
  *out = dynamic_cast<const CpuWeight*>(weight);
  if (*out != nullptr) return {};
  return InvalidArgument(std::string(field) + ": was not made by a CPU backend");
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

}  // namespace

Status OutOfMemory(const std::string& what, size_t bytes) {
  return {StatusCode::kResourceExhausted,
          what + ": no memory for " + std::to_string(bytes) + " bytes"};
}

Status ValidateThreads(int threads) { return CheckRange("threads", threads, 1, kThreadsMax); }

Status ValidateOptions(const BackendOptions& options) {
  if (options.compute_dtype == DType::kF32 || options.compute_dtype == DType::kBF16) return {};
  return InvalidArgument(
      "compute_dtype: " + std::to_string(static_cast<int>(options.compute_dtype)) +
      " is neither kF32 (0) nor kBF16 (1)");
}

Status ValidateWeight(const void* host_data, DType dtype, int64_t out_features,
                      int64_t in_features) {
  DELTAFILL_CHECK(CheckRange("out_features", out_features, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckRange("in_features", in_features, 1, kFeaturesMax));
  if (!IsKnown(dtype)) {
    return InvalidArgument("dtype: " + std::to_string(static_cast<int>(dtype)) + " is not a DType");
  }
  DELTAFILL_CHECK(CheckNotNull("host_data", host_data));
  if (reinterpret_cast<uintptr_t>(host_data) % SizeOf(dtype) != 0) {
    return InvalidArgument("host_data: is not aligned to its dtype's " +
                           std::to_string(SizeOf(dtype)) + " bytes");
  }
  return {};
}

Status Validate(const MatMulParams& params, const CpuWeight** weight) {
  DELTAFILL_CHECK(CheckWeight("weight", params.weight, weight));
  DELTAFILL_CHECK(CheckRange("rows", params.rows, 0, kRowsMax));
  DELTAFILL_CHECK(CheckRows("x", params.x, params.rows, (*weight)->in_features()));
  return CheckRows("y", params.y, params.rows, (*weight)->out_features());
}

Status Validate(const EmbeddingParams& params, const CpuWeight** table) {
  DELTAFILL_CHECK(CheckWeight("table", params.table, table));
  const int64_t count = static_cast<int64_t>(params.tokens.size());
  DELTAFILL_CHECK(CheckRange("tokens.size()", count, 0, kRowsMax));
  DELTAFILL_CHECK(CheckRows("y", params.y, count, (*table)->in_features()));
  const int64_t vocabulary = (*table)->out_features();
  for (size_t i = 0; i < params.tokens.size(); ++i) {
    if (params.tokens[i] < vocabulary) continue;
    return InvalidArgument("tokens[" + std::to_string(i) +
                           "]: " + std::to_string(params.tokens[i]) +
                           " is not below the vocabulary's " + std::to_string(vocabulary));
  }
  return {};
}

Status Validate(const RmsNormParams& params) {
  DELTAFILL_CHECK(CheckRange("rows", params.rows, 0, kRowsMax));
  DELTAFILL_CHECK(CheckRange("groups", params.groups, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckRange("width", params.width, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckNotNull("weight", params.weight));
  if (!(params.eps >= 0.0f && params.eps <= 1.0f)) {
    return InvalidArgument("eps: " + std::to_string(params.eps) + " is not in [0, 1]");
  }
  const int64_t channels = params.groups * params.width;
  DELTAFILL_CHECK(CheckRows("x", params.x, params.rows, channels));
  if (params.gate.data != nullptr) {
    DELTAFILL_CHECK(CheckRows("gate", params.gate, params.rows, channels));
  }
  return CheckRows("y", params.y, params.rows, channels);
}

Status Validate(const ShortConvParams& params) {
  DELTAFILL_CHECK(CheckRange("channels", params.channels, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckNotNull("weight", params.weight));
  DELTAFILL_CHECK(CheckOffsets(params.offsets));
  const int64_t rows = params.offsets.back();
  DELTAFILL_CHECK(CheckRows("x", params.x, rows, params.channels));
  return CheckRows("y", params.y, rows, params.channels);
}

Status Validate(const ConvTailParams& params) {
  DELTAFILL_CHECK(CheckRange("channels", params.channels, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckRange("tokens", params.tokens, 0, kRowsMax));
  DELTAFILL_CHECK(CheckNotNull("tail_out", params.tail_out));
  return CheckRows("x", params.x, params.tokens, params.channels);
}

Status Validate(const SwiGluParams& params) {
  DELTAFILL_CHECK(CheckRange("rows", params.rows, 0, kRowsMax));
  DELTAFILL_CHECK(CheckRange("width", params.width, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckRows("gate", params.gate, params.rows, params.width));
  DELTAFILL_CHECK(CheckRows("up", params.up, params.rows, params.width));
  return CheckRows("y", params.y, params.rows, params.width);
}

Status ValidateCopy(const void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  DELTAFILL_CHECK(CheckNotNull("to", to));
  return CheckNotNull("from", from);
}

#undef DELTAFILL_CHECK

}  // namespace deltafill::kernels::cpu
