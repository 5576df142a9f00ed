// One row of the short convolution for 8 channels, which moves their tail on: the same wherever a
// step computes it.
#ifndef DELTAFILL_KERNELS_CUDA_SHORT_CONV_STEP_CUH_
#define DELTAFILL_KERNELS_CUDA_SHORT_CONV_STEP_CUH_

#include <cstdint>

#include "kernels/cuda/short_conv.cuh"
#include "kernels/tensor.h"

namespace deltafill::kernels::cuda {

inline constexpr int kTailFloats = 8 * kConvTailRows;  // of 8 channels, [channel][row]

// Aligned to 16 bytes; zeros of nullptr.
__device__ __forceinline__ void LoadAlignedTail(const float* from, float (&tail)[kTailFloats]) {
#pragma unroll
  for (int i = 0; i < kTailFloats / 4; ++i) {
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (from != nullptr) x = reinterpret_cast<const float4*>(from)[i];
    tail[4 * i] = x.x, tail[4 * i + 1] = x.y, tail[4 * i + 2] = x.z, tail[4 * i + 3] = x.w;
  }
}

__device__ __forceinline__ void StoreAlignedTail(const float (&tail)[kTailFloats], float* to) {
#pragma unroll
  for (int i = 0; i < kTailFloats / 4; ++i) {
    reinterpret_cast<float4*>(to)[i] =
        make_float4(tail[4 * i], tail[4 * i + 1], tail[4 * i + 2], tail[4 * i + 3]);
  }
}

// Or read one by one.
__device__ __forceinline__ void LoadTail(const float* from, float (&tail)[kTailFloats]) {
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    LoadAlignedTail(from, tail);
  } else {
#pragma unroll
    for (int i = 0; i < kTailFloats; ++i) tail[i] = from[i];
  }
}

__device__ __forceinline__ void StoreTail(const float (&tail)[kTailFloats], float* to) {
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    StoreAlignedTail(tail, to);
  } else {
#pragma unroll
    for (int i = 0; i < kTailFloats; ++i) to[i] = tail[i];
  }
}

// `x` becomes the row's outputs.
__device__ __forceinline__ void ConvolveStep(const float4 (&weight)[8], float (&tail)[kTailFloats],
                                             float (&x)[8]) {
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    float* const rows = tail + c * kConvTailRows;
    const float y = ConvolvedSilu(weight[c], rows[0], rows[1], rows[2], x[c]);
    rows[0] = rows[1], rows[1] = rows[2], rows[2] = x[c];
    x[c] = y;
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_SHORT_CONV_STEP_CUH_
