// The output norm with its gates' product on Hopper (sm_90a): y = rms_norm(o) * weight *
// sigmoid(z W^T + bias) over heads of 128 columns, from z of 128. Gates are never written.
#ifndef DELTAFILL_KERNELS_CUDA_GATED_NORM_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_GATED_NORM_HOPPER_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

inline constexpr int kGatedNormWidth = 128;  // of a head and of z
inline constexpr int kGatedNormTokens = 64;  // of a tile
inline constexpr int kGatedNormCtas = 2;     // that a multiprocessor holds

struct GatedNormParams {
  TensorMap z;                    // [rows, 128], boxes of 64 rows
  TensorMap matrix;               // [heads * 128, 128], boxes of 128 rows
  TensorMap o;                    // [rows, heads * 128], boxes of 64 rows
  TensorMap y;                    // the same
  const float* weight = nullptr;  // [128]
  const float* bias = nullptr;    // [heads * 128] or nullptr
  float eps = 0.0f;
  int token_tiles = 0;
};

// CTAs: heads x groups.
cudaError_t LaunchGatedNorm(const GatedNormParams& params, int heads, int groups,
                            cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GATED_NORM_HOPPER_H_
