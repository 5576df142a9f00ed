#include "kernels/cpu/validate.h"

#include "kernels/cpu/param_checks.h"
#include "kernels/cpu/weight.h"

namespace deltafill::kernels::cpu {

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
  return CheckTokens(params.tokens, (*table)->out_features());
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

}  // namespace deltafill::kernels::cpu
