#include "kernels/cuda/check_operators.h"

#include <string>

#include "kernels/cuda/plan.h"
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

bool IsAligned16(const ConstRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.row_stride % 8 == 0;
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

Status CheckShortConv(const ShortConvParams& params) {
  if (Status s = CheckOffsets(params.offsets); !s.ok()) return s;
  if (params.channels < 8 || params.channels % 8 != 0) {
    return InvalidArgument("channels is " + std::to_string(params.channels) +
                           ", not a positive multiple of 8");
  }
  if (params.weight == nullptr) return InvalidArgument("weight is null");
  if (reinterpret_cast<uintptr_t>(params.weight) % 16 != 0) {
    return InvalidArgument("weight is not aligned to 16 bytes");
  }
  if (params.x.dtype != DType::kBF16 || params.y.dtype != DType::kBF16) {
    return {StatusCode::kUnsupported, "x.dtype and y.dtype: the CUDA backend takes bf16 rows"};
  }
  if (!IsAligned16(params.x) || !IsAligned16(params.y)) {
    return InvalidArgument("x and y must have rows aligned to 16 bytes");
  }
  return {};
}

Status CheckRmsNorm(const RmsNormParams& params) {
  if (params.width < 8 || params.width % 8 != 0 || params.width > 8192) {
    return InvalidArgument("width is " + std::to_string(params.width) +
                           ", not a multiple of 8 in [8, 8192]");
  }
  if (params.groups < 1 || params.groups > 65535) {
    return InvalidArgument("groups must be in [1, 65535]");
  }
  if (params.weight == nullptr) return InvalidArgument("weight is null");
  if (params.rows < 0) return InvalidArgument("rows is negative");
  if (params.rows == 0) return {};
  const bool gated = params.gate.data != nullptr;
  if (params.x.dtype != DType::kBF16 || params.y.dtype != DType::kBF16 ||
      (gated && params.gate.dtype != DType::kBF16)) {
    return {StatusCode::kUnsupported, "x, gate and y: the CUDA backend takes bf16 rows"};
  }
  if (IsAligned16(params.x) && IsAligned16(params.y) && (!gated || IsAligned16(params.gate)) &&
      reinterpret_cast<uintptr_t>(params.weight) % 16 == 0) {
    return {};
  }
  return InvalidArgument("x, gate, y and weight must be aligned to 16 bytes");
}

Status CheckMatMulSwiGlu(const MatMulSwiGluParams& params, int64_t out_features,
                         int64_t in_features) {
  const MatMulParams& product = params.gate_up;
  if (Status s = CheckMatMul(product, out_features, in_features); !s.ok()) return s;
  if (Status s = CheckMultiple("gate_up.weight's out_features", out_features, 16); !s.ok()) {
    return s;
  }
  if (product.bias != nullptr || product.accumulate) {
    return InvalidArgument("gate_up: has a bias or accumulates, which SwiGLU's product does not");
  }
  if (Status s = CheckRows("gate_up.y", product.y, product.rows, out_features, 16); !s.ok()) {
    return s;
  }
  return CheckRows("y", params.y, product.rows, out_features / 2, 16);
}

Status CheckMatMulShortConv(const MatMulShortConvParams& params, int64_t out_features,
                            int64_t in_features) {
  const MatMulParams& product = params.product;
  const ShortConvParams& conv = params.conv;
  if (Status s = CheckMatMul(product, out_features, in_features); !s.ok()) return s;
  if (Status s = CheckShortConv(conv); !s.ok()) return s;
  if (conv.x.data != product.y.data || conv.x.row_stride != product.y.row_stride) {
    return InvalidArgument("conv.x: is not the product's y");
  }
  if (conv.tails_out != nullptr && !product.step) {
    return InvalidArgument("conv.tails_out: is not null, and the product is not a step's");
  }
  if (Status s = CheckRange("conv.channels", conv.channels, 8, out_features); !s.ok()) return s;
  if (conv.offsets.back() == product.rows) return {};
  return InvalidArgument("conv.offsets: end at " + std::to_string(conv.offsets.back()) +
                         ", not at the product's " + std::to_string(product.rows) + " rows");
}

Status CheckMatMulGatedNorm(const MatMulGatedNormParams& params, int64_t out_features,
                            int64_t in_features) {
  const RmsNormParams& norm = params.norm;
  if (Status s = CheckMatMul(params.gate, out_features, in_features); !s.ok()) return s;
  if (Status s = CheckRmsNorm(norm); !s.ok()) return s;
  if (params.gate.accumulate) return InvalidArgument("gate: accumulates");
  if (norm.rows != params.gate.rows) {
    return InvalidArgument("norm.rows: " + std::to_string(norm.rows) + " is not gate.rows, " +
                           std::to_string(params.gate.rows));
  }
  if (norm.groups * norm.width == out_features) return {};
  return InvalidArgument("norm: " + std::to_string(norm.groups) + " groups of " +
                         std::to_string(norm.width) + " are not the product's " +
                         std::to_string(out_features) + " columns");
}

Status CheckCopy(const void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  if (Status s = CheckNotNull("to", to); !s.ok()) return s;
  return CheckNotNull("from", from);
}

}  // namespace deltafill::kernels::cuda
