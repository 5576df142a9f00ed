// Params of the grouped product's kernel for sm_90a.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_H_
#define DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_H_

#include "kernels/cuda/grouped_product.h"

namespace deltafill::kernels::cuda {

// Rows of the boxes in which packed rows come.
inline constexpr int kRowsBox = 32, kFewRowsBox = 8;

struct GroupedHopperParams {
  TensorMap rows;                       // [x_rows, in_features] in boxes of kRowsBox
  TensorMap few_rows;                   // in boxes of kFewRowsBox
  const TensorMap* matrices = nullptr;  // device [experts]
  const TokenTile* tiles = nullptr;
  GroupedWork* work = nullptr;
  int ticket = 0;
  int feature_groups = 0;  // of as many feature tiles as a cluster has CTAs
  int depth_blocks = 0;    // of 64 channels
  int out_features = 0;
  __nv_bfloat16* y = nullptr;
};

cudaError_t LaunchGroupedHopperKernel(const GroupedHopperParams& params, bool swiglu, int cluster,
                                      int ctas, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_H_
