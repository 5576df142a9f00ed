// Gate activations: raw f to the log2 decay of a token, always <= 0 for finite input.
#ifndef DELTAFILL_KERNELS_CUDA_GATE_CUH_
#define DELTAFILL_KERNELS_CUDA_GATE_CUH_

#include "kernels/cuda/log2e.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/delta_rule.h"

namespace deltafill::kernels::cuda {

enum class GateForm { kSoftplus, kLowerBound, kPreactivated };

// A gate's constants for one channel.
struct GateConstants {
  float scale = 0.0f;   // multiplies f
  float offset = 0.0f;  // added after it
  float factor = 0.0f;  // multiplies the activation
};

__device__ __forceinline__ GateForm FormOf(GateKind gate) {
  switch (gate) {
    case GateKind::kScalarSoftplus:
    case GateKind::kChannelSoftplus:
      return GateForm::kSoftplus;
    case GateKind::kChannelLowerBound:
      return GateForm::kLowerBound;
    default:
      return GateForm::kPreactivated;
  }
}

__device__ __forceinline__ bool IsChannelGate(GateKind gate) {
  return gate == GateKind::kChannelSoftplus || gate == GateKind::kChannelLowerBound ||
         gate == GateKind::kChannelPreactivated;
}

__device__ __forceinline__ GateConstants MakeGateConstants(GateForm form, float a_log,
                                                           float dt_bias, float lower_bound) {
  const float a = form == GateForm::kPreactivated ? 1.0f : expf(a_log);
  switch (form) {
    case GateForm::kSoftplus:
      return {kLog2E, dt_bias * kLog2E, -a};
    case GateForm::kLowerBound:
      return {-a * kLog2E, -a * dt_bias * kLog2E, lower_bound * kLog2E};
    default:
      return {kLog2E, 0.0f, 1.0f};
  }
}

// g log2(e). softplus(x) log2(e) = log2(1 + 2^(x log2 e)); for small powers the series of the
// logarithm, whose relative error stays under 1e-5 where lg2 near 1 has only absolute precision.
template <GateForm form>
__device__ __forceinline__ float Log2Decay(float f, const GateConstants& gate) {
  const float y = fmaf(f, gate.scale, gate.offset);
  if constexpr (form == GateForm::kPreactivated) return y;
  if constexpr (form == GateForm::kLowerBound) {
    return gate.factor * Reciprocal(1.0f + Exp2(y));
  } else {
    const float u = Exp2(y);
    const float series = u * fmaf(u, fmaf(u, fmaf(u, -0.25f, 0.333333333f), -0.5f), 1.0f) * kLog2E;
    const float logarithm = y > 30.0f ? y : Log2(1.0f + u);
    return gate.factor * (u < 0.0625f ? series : logarithm);
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GATE_CUH_
