#include "kernels/cpu/expert_validation.h"

#include <cmath>
#include <string>

#include "kernels/cpu/param_checks.h"
#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {
namespace {

// Names are made for a bad matrix only: there are hundreds of good ones a call.
Status CheckMatrix(const char* name, size_t expert, const Weight* weight, int64_t out_features,
                   int64_t in_features) {
  const auto* const ours = dynamic_cast<const CpuWeight*>(weight);
  if (ours != nullptr && ours->out_features() == out_features &&
      ours->in_features() == in_features) {
    return {};
  }
  const std::string field = "experts[" + std::to_string(expert) + "]." + name;
  const CpuWeight* checked = nullptr;
  DELTAFILL_CHECK(CheckWeight(field, weight, &checked));
  return InvalidArgument(field + ": is [" + std::to_string(ours->out_features()) + ", " +
                         std::to_string(ours->in_features()) + "], not [" +
                         std::to_string(out_features) + ", " + std::to_string(in_features) + "]");
}

}  // namespace

Status Validate(const MixtureParams& params) {
  const MixtureShape& shape = params.shape;
  DELTAFILL_CHECK(CheckRange("shape.experts", shape.experts, 1, kExpertsMax));
  DELTAFILL_CHECK(CheckRange("shape.top_k", shape.top_k, 1, shape.experts));
  DELTAFILL_CHECK(CheckRange("shape.hidden", shape.hidden, 1, kFeaturesMax));
  DELTAFILL_CHECK(CheckRange("shape.expert_width", shape.expert_width, 1, kFeaturesMax / 2));
  if (!std::isfinite(shape.routed_scale)) {
    return InvalidArgument("shape.routed_scale: " + std::to_string(shape.routed_scale) +
                           " is not finite");
  }
  DELTAFILL_CHECK(CheckFloats("router", params.router));
  if (params.correction_bias != nullptr) {
    DELTAFILL_CHECK(CheckFloats("correction_bias", params.correction_bias));
  }
  if (static_cast<int64_t>(params.experts.size()) != shape.experts) {
    return InvalidArgument("experts.size(): " + std::to_string(params.experts.size()) +
                           " is not shape.experts, " + std::to_string(shape.experts));
  }
  for (size_t e = 0; e < params.experts.size(); ++e) {
    DELTAFILL_CHECK(
        CheckMatrix("gate_up", e, params.experts[e].gate_up, 2 * shape.expert_width, shape.hidden));
    DELTAFILL_CHECK(
        CheckMatrix("down", e, params.experts[e].down, shape.hidden, shape.expert_width));
  }
  DELTAFILL_CHECK(CheckRange("rows", params.rows, 0, kRowsMax));
  DELTAFILL_CHECK(CheckRows("x", params.x, params.rows, shape.hidden));
  return CheckRows("y", params.y, params.rows, shape.hidden);
}

}  // namespace deltafill::kernels::cpu
