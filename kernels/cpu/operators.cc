#include "kernels/cpu/operators.h"

#include <cstring>

#include "kernels/cpu/delta_rule.h"
#include "kernels/cpu/expert_validation.h"
#include "kernels/cpu/latent_operators.h"
#include "kernels/cpu/latent_validation.h"
#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {

Status CpuOperators::Embedding(const EmbeddingParams& params) {
  const CpuWeight* table = nullptr;
  if (Status status = Validate(params, &table); !status.ok()) return status;
  cpu::Embedding(params, *table, team_);
  return {};
}

Status CpuOperators::MatMul(const MatMulParams& params) {
  const CpuWeight* weight = nullptr;
  if (Status status = Validate(params, &weight); !status.ok()) return status;
  if (params.step && weight->compute_dtype() == DType::kF32) {
    return cpu::MatMulStep(params, *weight, team_, scratch_);
  }
  return cpu::MatMul(params, *weight, team_, scratch_);
}

Status CpuOperators::RmsNorm(const RmsNormParams& params) {
  if (Status status = Validate(params); !status.ok()) return status;
  cpu::RmsNorm(params, team_);
  return {};
}

Status CpuOperators::ShortConv(const ShortConvParams& params) {
  if (Status status = Validate(params); !status.ok()) return status;
  return cpu::ShortConv(params, team_, scratch_);
}

Status CpuOperators::ConvTail(const ConvTailParams& params) {
  if (Status status = Validate(params); !status.ok()) return status;
  cpu::ConvTail(params);
  return {};
}

Status CpuOperators::SwiGlu(const SwiGluParams& params) {
  if (Status status = Validate(params); !status.ok()) return status;
  cpu::SwiGlu(params, team_);
  return {};
}

Status CpuOperators::DeltaRuleForward(const DeltaRuleForwardParams& params) {
  return cpu::DeltaRuleForward(params, team_);
}

Status CpuOperators::DeltaRuleSummary(const DeltaRuleSummaryParams& params) {
  return cpu::DeltaRuleSummary(params, team_);
}

Status CpuOperators::DeltaRuleStep(const DeltaRuleStepParams& params) {
  return cpu::DeltaRuleStep(params, team_);
}

Status CpuOperators::LatentAppend(const LatentAppendParams& params) {
  if (Status status = Validate(params); !status.ok()) return status;
  cpu::LatentAppend(params, team_);
  return {};
}

Status CpuOperators::LatentPrefill(const LatentPrefillParams& params) {
  const CpuLatentProjection* projection = nullptr;
  if (Status status = Validate(params, &projection); !status.ok()) return status;
  return cpu::LatentPrefill(params, *projection, team_, scratch_);
}

Status CpuOperators::LatentStep(const LatentStepParams& params) {
  const CpuLatentProjection* projection = nullptr;
  if (Status status = Validate(params, &projection); !status.ok()) return status;
  return cpu::LatentStep(params, *projection, team_, scratch_);
}

Status CpuOperators::MixtureOfExperts(const MixtureParams& params) {
  if (Status status = Validate(params); !status.ok()) return status;
  return cpu::MixtureOfExperts(params, team_, scratch_);
}

Status CpuOperators::Mark(std::unique_ptr<LanePoint>* point) {
  // Calls are complete when they return.
  class ReachedPoint final : public LanePoint {
   public:
    Status Wait() override { return {}; }
  };
  if (*point == nullptr) *point = std::make_unique<ReachedPoint>();
  return {};
}

Status CpuOperators::Copy(void* to, const void* from, size_t bytes) {
  return CopyFromHost(to, from, bytes);
}

Status CpuOperators::CopyFromHost(void* to, const void* host_from, size_t bytes) {
  if (Status status = ValidateCopy(to, host_from, bytes); !status.ok()) return status;
  if (bytes > 0) std::memcpy(to, host_from, bytes);
  return {};
}

Status CpuOperators::CopyToHost(void* host_to, const void* from, size_t bytes) {
  return CopyFromHost(host_to, from, bytes);
}

Status CpuOperators::FillZero(void* to, size_t bytes) {
  if (Status status = ValidateCopy(to, to, bytes); !status.ok()) return status;
  if (bytes > 0) std::memset(to, 0, bytes);
  return {};
}

}  // namespace deltafill::kernels::cpu
