// Checked params to the plain structs that kernels receive.
#ifndef DELTAFILL_KERNELS_CUDA_INPUTS_H_
#define DELTAFILL_KERNELS_CUDA_INPUTS_H_

#include <cmath>

#include "kernels/cuda/device_params.h"
#include "kernels/delta_rule.h"

namespace deltafill::kernels::cuda {

inline bool IsVectorized(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

inline DeviceRows MakeDeviceRows(const ConstRows& rows) {
  return {static_cast<const __nv_bfloat16*>(rows.data), rows.row_stride,
          IsVectorized(rows.data, rows.row_stride)};
}

inline BlockInputs MakeBlockInputs(const DeltaRuleShape& shape, const DeltaRuleInputs& in) {
  BlockInputs out;
  out.q = MakeDeviceRows(in.q);
  out.k = MakeDeviceRows(in.k);
  out.f = MakeDeviceRows(in.f);
  out.beta = MakeDeviceRows(in.beta);
  out.a_log = in.a_log;
  out.dt_bias = in.dt_bias;
  out.gate = shape.gate;
  out.delta = shape.write == WriteRule::kDelta;
  out.normalize_qk = shape.normalize_qk;
  out.beta_is_logit = shape.beta_is_logit;
  out.lower_bound = shape.lower_bound;
  out.query_scale = shape.query_scale != 0.0f ? shape.query_scale
                                              : 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  out.heads_ratio = shape.value_heads / shape.heads;
  return out;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_INPUTS_H_
