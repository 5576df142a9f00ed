// The delta rule token by token on a CUDA device, in fp32: decoding, and the summary of a segment.
// Any card from sm_80 on; K and V of 32, 64 or 128; pointers in the params are device pointers.
#ifndef DELTAFILL_KERNELS_CUDA_RECURRENT_H_
#define DELTAFILL_KERNELS_CUDA_RECURRENT_H_

#include <cuda_runtime.h>

#include "kernels/cuda/runtime.h"
#include "kernels/delta_rule.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

// State addresses that travel with the launch.
inline constexpr int kStepInlineBatch = 256;

// One token for each sequence; states are updated in place. A sequence's bits do not depend on the
// batch. `state_pointers` holds the states' addresses on the device.
Status DeltaRuleStep(const DeltaRuleStepParams& params, DeviceBuffer* state_pointers,
                     cudaStream_t stream);

// The affine map of one sequence's rows, from the recurrence itself: the chain of M is fp32
// throughout. Time grows with the number of rows, not with what the card could do at once.
Status DeltaRuleSummary(const DeltaRuleSummaryParams& params, cudaStream_t stream);

// s_out = M s_in + B for all value heads: [HV, V, K] states, m [HV, K, K] (out channel, in
// channel), in fp32. s_out may be b but not s_in.
struct SummaryFoldParams {
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  const float* m = nullptr;
  const float* b = nullptr;
  const float* s_in = nullptr;
  float* s_out = nullptr;
};
Status FoldSummary(const SummaryFoldParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RECURRENT_H_
