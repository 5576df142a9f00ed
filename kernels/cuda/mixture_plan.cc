#include "kernels/cuda/mixture_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/operators.h"
#include "kernels/param_checks.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr uintptr_t kAlignment = 16;

Status CheckAligned(const std::string& field, const void* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0) return {};
  return InvalidArgument(field + ": is not aligned to " + std::to_string(kAlignment) + " bytes");
}

Status CheckRows(const std::string& field, const ConstRows& rows, int64_t count, int64_t width) {
  if (rows.dtype != DType::kBF16) {
    return {StatusCode::kUnsupported, field + ".dtype: the CUDA backend takes bf16 rows"};
  }
  if (count == 0) return {};
  if (Status s = CheckNotNull(field + ".data", rows.data); !s.ok()) return s;
  if (rows.row_stride < width) {
    return InvalidArgument(field + ".row_stride: " + std::to_string(rows.row_stride) +
                           " is less than the width " + std::to_string(width));
  }
  if (rows.row_stride % 8 == 0) return CheckAligned(field + ".data", rows.data);
  return InvalidArgument(field + ".row_stride: " + std::to_string(rows.row_stride) +
                         " is not a multiple of 8");
}

Status CheckFeatures(const std::string& field, int64_t value, int64_t high) {
  if (Status s = CheckRange(field, value, 8, high); !s.ok()) return s;
  if (value % 8 == 0) return {};
  return InvalidArgument(field + ": " + std::to_string(value) + " is not a multiple of 8");
}

// Names are made for a bad matrix only: there are hundreds of good ones a call.
Status CheckMatrix(const char* name, size_t expert, const Weight* weight, int64_t out_features,
                   int64_t in_features) {
  if (weight != nullptr && weight->out_features() == out_features &&
      weight->in_features() == in_features) {
    return {};
  }
  const std::string field = "experts[" + std::to_string(expert) + "]." + name;
  if (Status s = CheckNotNull(field, weight); !s.ok()) return s;
  return InvalidArgument(field + ": is [" + std::to_string(weight->out_features()) + ", " +
                         std::to_string(weight->in_features()) + "], not [" +
                         std::to_string(out_features) + ", " + std::to_string(in_features) + "]");
}

Status CheckShape(const MixtureShape& shape) {
  if (Status s = CheckRange("shape.experts", shape.experts, 1, kMixtureExpertsMax); !s.ok()) {
    return s;
  }
  if (Status s = CheckRange("shape.top_k", shape.top_k, 1, shape.experts); !s.ok()) return s;
  if (shape.top_k > kMixtureTopKMax) {
    return {StatusCode::kUnsupported, "shape.top_k: " + std::to_string(shape.top_k) +
                                          " is more than the " + std::to_string(kMixtureTopKMax) +
                                          " of the CUDA backend"};
  }
  if (Status s = CheckFeatures("shape.hidden", shape.hidden, kMixtureFeaturesMax); !s.ok())
    return s;
  if (Status s = CheckFeatures("shape.expert_width", shape.expert_width, kMixtureFeaturesMax);
      !s.ok()) {
    return s;
  }
  if (std::isfinite(shape.routed_scale)) return {};
  return InvalidArgument("shape.routed_scale: " + std::to_string(shape.routed_scale) +
                         " is not finite");
}

}  // namespace

Status CheckMixture(const MixtureParams& params) {
  const MixtureShape& shape = params.shape;
  if (Status s = CheckShape(shape); !s.ok()) return s;
  if (Status s = CheckNotNull("router", params.router); !s.ok()) return s;
  if (Status s = CheckAligned("router", params.router); !s.ok()) return s;
  if (Status s = CheckAligned("correction_bias", params.correction_bias); !s.ok()) return s;
  if (static_cast<int64_t>(params.experts.size()) != shape.experts) {
    return InvalidArgument("experts.size(): " + std::to_string(params.experts.size()) +
                           " is not shape.experts, " + std::to_string(shape.experts));
  }
  for (size_t e = 0; e < params.experts.size(); ++e) {
    const ExpertWeights& expert = params.experts[e];
    if (Status s = CheckMatrix("gate_up", e, expert.gate_up, 2 * shape.expert_width, shape.hidden);
        !s.ok()) {
      return s;
    }
    if (Status s = CheckMatrix("down", e, expert.down, shape.hidden, shape.expert_width); !s.ok()) {
      return s;
    }
  }
  if (Status s = CheckRange("rows", params.rows, 0, kRowsMax); !s.ok()) return s;
  if (Status s = CheckRows("x", params.x, params.rows, shape.hidden); !s.ok()) return s;
  return CheckRows("y", params.y, params.rows, shape.hidden);
}

int64_t MixturePassRows(const MixtureShape& shape) {
  return kMixtureChoicesMax / shape.top_k / kMixtureChoosingRows * kMixtureChoosingRows;
}

int64_t TokenTilesMax(const MixtureShape& shape, int64_t rows) {
  const int64_t choices = rows * shape.top_k;
  return std::min<int64_t>(shape.experts, choices) + choices / kTokenTileRows;
}

MixtureLayout LayOutMixture(const MixtureShape& shape, int64_t rows) {
  MixtureLayout layout;
  const auto cut = [&](int64_t count, size_t element) {
    const size_t at = layout.bytes;
    layout.bytes +=
        (static_cast<size_t>(count) * element + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  const int64_t choices = rows * shape.top_k;
  const int64_t groups = (rows + kMixtureChoosingRows - 1) / kMixtureChoosingRows;
  layout.logits = cut(rows * shape.experts, sizeof(float));
  layout.experts = cut(choices, sizeof(int32_t));
  layout.weights = cut(choices, sizeof(float));
  layout.slots = cut(choices, sizeof(int32_t));
  layout.counts = cut(groups * shape.experts, sizeof(int32_t));
  layout.begin = cut(shape.experts, sizeof(int32_t));
  layout.tiles = cut(TokenTilesMax(shape, rows), sizeof(TokenTile));
  layout.work = cut(1, sizeof(GroupedWork));
  return layout;
}

}  // namespace deltafill::kernels::cuda
