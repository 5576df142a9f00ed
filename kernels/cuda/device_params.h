// Plain structs that kernels receive: what a call's params become once they are checked.
#ifndef DELTAFILL_KERNELS_CUDA_DEVICE_PARAMS_H_
#define DELTAFILL_KERNELS_CUDA_DEVICE_PARAMS_H_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/delta_rule.h"

namespace deltafill::kernels::cuda {

struct DeviceRows {
  const __nv_bfloat16* rows = nullptr;
  int64_t stride = 0;      // elements
  bool vectorized = true;  // rows and stride are multiples of 16 bytes
};

// What the preparation of a block reads.
struct BlockInputs {
  DeviceRows q, k;                 // [rows, H*K]
  DeviceRows f;                    // [rows, HV*K] or [rows, HV]
  DeviceRows beta;                 // [rows, HV]
  const float* a_log = nullptr;    // [HV]
  const float* dt_bias = nullptr;  // [HV*K], [HV] or nullptr
  GateKind gate = GateKind::kNone;
  bool delta = true;  // WriteRule::kDelta
  bool normalize_qk = true;
  bool beta_is_logit = true;
  float lower_bound = -5.0f;
  float query_scale = 1.0f;
  int heads_ratio = 1;  // HV / H
};

struct SequenceSpan {
  int64_t first_row = 0;
  int64_t rows = 0;
  const float* initial_state = nullptr;  // [HV, V, K] or nullptr: zero
  float* final_state = nullptr;          // [HV, V, K] or nullptr
  int32_t checkpoint_begin = 0;          // into the call's checkpoints
  int32_t checkpoint_end = 0;
};

struct CheckpointTarget {
  int64_t blocks = 0;      // of the sequence, before the state is taken
  float* state = nullptr;  // [HV, V, K]
};

// What the state chain reads beside the slots.
struct ChainInputs {
  DeviceRows v;  // [rows, HV*V]
  __nv_bfloat16* o = nullptr;
  int64_t o_stride = 0;
  bool o_vectorized = true;
  const SequenceSpan* sequences = nullptr;
  const CheckpointTarget* checkpoints = nullptr;
  int value_heads = 0;
  int value_dim = 0;
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DEVICE_PARAMS_H_
