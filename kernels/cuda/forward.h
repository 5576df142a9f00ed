// The chunkwise delta rule forward on a CUDA device: params to launches.
#ifndef DELTAFILL_KERNELS_CUDA_FORWARD_H_
#define DELTAFILL_KERNELS_CUDA_FORWARD_H_

#include <cuda_runtime.h>

#include "kernels/cuda/plan.h"
#include "kernels/cuda/runtime.h"
#include "kernels/delta_rule.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

// Device memory of one lane, which calls on one stream reuse. Its size is bounded whatever the
// number of tokens; only the descriptions of items grow with the number of sequences.
struct ForwardWorkspace {
  DeviceBuffer slots;
  DeviceBuffer exact_rows;
  DeviceBuffer carried;       // portable: states between waves
  DeviceBuffer descriptions;  // sequences, checkpoints, streams, items, counters

  size_t bytes() const {
    return slots.bytes() + exact_rows.bytes() + carried.bytes() + descriptions.bytes();
  }
};

// Issues the forward pass on `stream`; pointers in the params' structs are device pointers, arrays
// marked host are read before it returns. kUnsupported where the device is older than sm_80.
Status DeltaRuleForward(const DeltaRuleForwardParams& params, const ForwardTuning& tuning,
                        ForwardWorkspace* workspace, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_FORWARD_H_
