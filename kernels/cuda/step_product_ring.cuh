// Shared memory of a CTA of decoding's products, and the two warps that have it filled: weights run
// ahead of the kernel in front, rows of x wait for it.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_RING_CUH_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_RING_CUH_

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/step_product_hopper.h"
#include "kernels/cuda/step_product_plan.h"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kStepWeightBytes = kStepCtaFeatures * 128;

// Once the stages are empty, finished sums take their place, and parts' sums where there is no
// other.
template <int row_count>
struct StepShared {
  static constexpr int kCtas = 2;  // that a multiprocessor has room for
  static constexpr int kWeightStages = row_count == 8 ? 6 : 5;
  static constexpr int kRowStages = row_count == 64 ? 4 : kWeightStages;
  static constexpr int kRowBytes = row_count * 128;
  static constexpr int kSumBytes = kStepCtaFeatures * row_count * 4;
  static constexpr bool kSumsApart = row_count <= 16;

  alignas(1024) uint8_t weights[kWeightStages][kStepWeightBytes];
  alignas(1024) uint8_t rows[kRowStages][kRowBytes];
  alignas(16) uint8_t apart[kSumsApart ? kSumBytes : 16];
  uint64_t arrived;  // once all parts' sums have
  uint64_t weights_filled[kWeightStages];
  uint64_t weights_emptied[kWeightStages];  // an arrival a warp that multiplies
  uint64_t rows_filled[kRowStages];
  uint64_t rows_emptied[kRowStages];

  __device__ __forceinline__ float4* sums() {
    return kSumsApart ? reinterpret_cast<float4*>(apart) : reinterpret_cast<float4*>(this);
  }
  __device__ __forceinline__ float* staged() {
    return reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(this) +
                                    (kSumsApart ? 0 : kSumBytes));
  }

  __device__ __forceinline__ void Init() {
    for (int i = 0; i < kWeightStages; ++i) {
      BarrierInit(SharedAddress(&weights_filled[i]), 1);
      BarrierInit(SharedAddress(&weights_emptied[i]), 4);
    }
    for (int i = 0; i < kRowStages; ++i) {
      BarrierInit(SharedAddress(&rows_filled[i]), 1);
      BarrierInit(SharedAddress(&rows_emptied[i]), 4);
    }
    BarrierInit(SharedAddress(&arrived), 1);
    FenceBarrierInit();
    FenceAsync();
    BarrierExpect(SharedAddress(&arrived), kSumBytes);
  }
};

__device__ __forceinline__ void PrefetchTensorMap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// By one thread. Nothing writes weights: it does not wait for the kernel in front. Features from
// `first` and from `second` on, as many as an instruction multiplies.
template <int rows>
__device__ __forceinline__ void CopyWeights(const TensorMap* map, StepShared<rows>& s, int first,
                                            int second, int first_block, int blocks) {
  constexpr int kStages = StepShared<rows>::kWeightStages, kHalfBytes = kStepWeightBytes / 2;
  RingPlace<kStages> ring;
  for (int block = 0; block < blocks; ++block) {
    if (block >= kStages) {
      BarrierWait(SharedAddress(&s.weights_emptied[ring.index]), ring.parity ^ 1);
    }
    const uint32_t filled = SharedAddress(&s.weights_filled[ring.index]);
    BarrierExpect(filled, kStepWeightBytes);
    const uint32_t to = SharedAddress(s.weights[ring.index]);
    const int column = (first_block + block) * kStepBlock;
    TensorCopy(to, map, column, first, filled);
    TensorCopy(to + kHalfBytes, map, column, second, filled);
    ring.Step();
  }
}

// Rows that the copy engine does not take, element by element.
static __device__ __noinline__ void CopyElements(const StepHopperProduct& planned, int first_row,
                                                 int x_rows, int first_column, int lane,
                                                 uint8_t* to) {
  DeviceRows x = planned.product.x;
  x.rows += first_row * x.stride;
  for (int row = 0; row < x_rows; ++row) {
#pragma unroll 1
    for (int i = lane; i < kStepBlock; i += 32) {
      const int column = first_column + i;
      const __nv_bfloat16 value =
          column < planned.product.in_features ? x.rows[row * x.stride + column] : __nv_bfloat16();
      reinterpret_cast<__nv_bfloat16*>(to + SwizzledPiece(0, row, i >> 3))[i & 7] = value;
    }
  }
  FenceAsyncShared();
  __syncwarp();
}

// By a whole warp.
template <int rows>
__device__ __forceinline__ void CopyRows(const StepHopperProduct& planned, StepShared<rows>& s,
                                         int first_row, int x_rows, int first_block, int blocks,
                                         int lane) {
  constexpr int kStages = StepShared<rows>::kRowStages;
  const bool vectorized = planned.product.x.vectorized;
  if (vectorized && lane == 0) PrefetchTensorMap(&planned.x);
  WaitForEarlierKernels();
  RingPlace<kStages> ring;
  for (int block = 0; block < blocks; ++block) {
    if (block >= kStages) {
      BarrierWait(SharedAddress(&s.rows_emptied[ring.index]), ring.parity ^ 1);
    }
    const uint32_t filled = SharedAddress(&s.rows_filled[ring.index]);
    const int column = (first_block + block) * kStepBlock;
    if (!vectorized) {
      CopyElements(planned, first_row, x_rows, column, lane, s.rows[ring.index]);
      if (lane == 0) BarrierArrive(filled);
    } else if (lane == 0) {
      BarrierExpect(filled, StepShared<rows>::kRowBytes);
      TensorCopy(SharedAddress(s.rows[ring.index]), &planned.x, column, first_row, filled);
    }
    ring.Step();
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_RING_CUH_
