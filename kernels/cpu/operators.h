// The CPU backend's lane: checks params and runs them on its own threads before it returns.
#ifndef DELTAFILL_KERNELS_CPU_OPERATORS_H_
#define DELTAFILL_KERNELS_CPU_OPERATORS_H_

#include "kernels/cpu/prefill_operators.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cpu {

// Every call is complete when it returns, so Synchronize has nothing to wait for. Rows must be fp32
// (others: kUnsupported).
class CpuOperators final : public Operators {
 public:
  explicit CpuOperators(int threads) : team_(threads), scratch_(team_.threads()) {}

  Status Embedding(const EmbeddingParams& params) override;
  Status MatMul(const MatMulParams& params) override;
  Status RmsNorm(const RmsNormParams& params) override;
  Status ShortConv(const ShortConvParams& params) override;
  Status ConvTail(const ConvTailParams& params) override;
  Status SwiGlu(const SwiGluParams& params) override;
  Status DeltaRuleForward(const DeltaRuleForwardParams& params) override;
  Status DeltaRuleSummary(const DeltaRuleSummaryParams& params) override;
  Status LatentAppend(const LatentAppendParams& params) override;
  Status LatentPrefill(const LatentPrefillParams& params) override;
  Status LatentStep(const LatentStepParams& params) override;
  Status MixtureOfExperts(const MixtureParams& params) override;
  Status DeltaRuleStep(const DeltaRuleStepParams& params) override;
  Status Synchronize() override { return {}; }
  Status Mark(std::unique_ptr<LanePoint>* point) override;
  Status Copy(void* to, const void* from, size_t bytes) override;
  Status CopyFromHost(void* to, const void* host_from, size_t bytes) override;
  Status CopyToHost(void* host_to, const void* from, size_t bytes) override;
  Status FillZero(void* to, size_t bytes) override;

 private:
  ThreadTeam team_;
  LaneScratch scratch_;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_OPERATORS_H_
