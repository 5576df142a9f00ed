#include "kernels/cuda/check_operators.h"

#include <string>

#include "kernels/param_checks.h"

namespace deltafill::kernels::cuda {
namespace {

Status CheckMultiple(const char* field, int64_t value, int64_t of) {
  if (value % of == 0) return {};
  return InvalidArgument(std::string(field) + ": " + std::to_string(value) +
                         " is not a multiple of " + std::to_string(of));
}

// Rows of `count` x `width` elements, aligned to `alignment` bytes. f32 only where `allows_f32`.
Status CheckRows(const char* field, const ConstRows& rows, int64_t count, int64_t width,
                 int64_t alignment, bool allows_f32 = false) {
  if (rows.dtype != DType::kBF16 && !(allows_f32 && rows.dtype == DType::kF32)) {
    return {StatusCode::kUnsupported, std::string(field) +
                                          ".dtype: the CUDA backend takes bf16 rows" +
                                          (allows_f32 ? " or f32" : "")};
  }
  if (count == 0) return {};
  if (Status s = CheckNotNull(std::string(field) + ".data", rows.data); !s.ok()) return s;
  if (rows.row_stride < width) {
    return InvalidArgument(std::string(field) + ".row_stride: " + std::to_string(rows.row_stride) +
                           " is less than the width " + std::to_string(width));
  }
  const int64_t bytes = static_cast<int64_t>(SizeOf(rows.dtype));
  const bool aligned =
      reinterpret_cast<uintptr_t>(rows.data) % static_cast<uintptr_t>(alignment) == 0 &&
      (count == 1 || rows.row_stride * bytes % alignment == 0);
  if (aligned) return {};
  return InvalidArgument(std::string(field) + ": rows are not aligned to " +
                         std::to_string(alignment) + " bytes");
}

}  // namespace

Status CheckOptions(const BackendOptions& options) {
  if (options.compute_dtype == DType::kBF16) return {};
  return InvalidArgument(
      "compute_dtype: " + std::to_string(static_cast<int>(options.compute_dtype)) +
      " is not kBF16 (1), the only one of the CUDA backend");
}

Status CheckWeight(const void* host_data, DType dtype, int64_t out_features, int64_t in_features) {
  if (Status s = CheckRange("out_features", out_features, 1, kFeaturesMax); !s.ok()) return s;
  if (Status s = CheckRange("in_features", in_features, 8, kFeaturesMax); !s.ok()) return s;
  if (Status s = CheckMultiple("in_features", in_features, 8); !s.ok()) return s;
  if (!IsKnown(dtype)) {
    return InvalidArgument("dtype: " + std::to_string(static_cast<int>(dtype)) + " is not a DType");
  }
  if (Status s = CheckNotNull("host_data", host_data); !s.ok()) return s;
  if (reinterpret_cast<uintptr_t>(host_data) % SizeOf(dtype) == 0) return {};
  return InvalidArgument("host_data: is not aligned to its dtype's " +
                         std::to_string(SizeOf(dtype)) + " bytes");
}

Status CheckMatMul(const MatMulParams& params, int64_t out_features, int64_t in_features) {
  if (Status s = CheckRange("rows", params.rows, 0, kRowsMax); !s.ok()) return s;
  if (Status s = CheckRows("x", params.x, params.rows, in_features, 2); !s.ok()) return s;
  const int64_t y_alignment = static_cast<int64_t>(SizeOf(params.y.dtype));
  return CheckRows("y", params.y, params.rows, out_features, y_alignment, true);
}

Status CheckEmbedding(const EmbeddingParams& params, int64_t vocabulary, int64_t width) {
  const int64_t count = static_cast<int64_t>(params.tokens.size());
  if (Status s = CheckRange("tokens.size()", count, 0, kRowsMax); !s.ok()) return s;
  if (Status s = CheckRows("y", params.y, count, width, 16); !s.ok()) return s;
  return CheckTokens(params.tokens, vocabulary);
}

Status CheckSwiGlu(const SwiGluParams& params) {
  if (Status s = CheckRange("rows", params.rows, 0, kRowsMax); !s.ok()) return s;
  if (Status s = CheckRange("width", params.width, 8, kFeaturesMax); !s.ok()) return s;
  if (Status s = CheckMultiple("width", params.width, 8); !s.ok()) return s;
  if (Status s = CheckRows("gate", params.gate, params.rows, params.width, 16); !s.ok()) return s;
  if (Status s = CheckRows("up", params.up, params.rows, params.width, 16); !s.ok()) return s;
  return CheckRows("y", params.y, params.rows, params.width, 16);
}

Status CheckCopy(const void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  if (Status s = CheckNotNull("to", to); !s.ok()) return s;
  return CheckNotNull("from", from);
}

}  // namespace deltafill::kernels::cuda
