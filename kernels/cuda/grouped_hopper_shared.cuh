// Shared memory of the grouped product's CTA, and the roles' common words.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_SHARED_CUH_

#include "kernels/cuda/grouped_hopper.h"
#include "kernels/cuda/product_stages.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kGroupedStageBytes = kProductMatrixBytes + kTokenTileRows * 128;
inline constexpr int kGroupedOutputBytes = 16384;  // of a multiplying warpgroup
inline constexpr int kGroupedTickets = 8;          // that a cluster may have drawn and not used

// What a CTA does with a token tile; travels with the tile's first stage.
struct GroupedTask {
  int32_t first_row = 0;
  int32_t rows = 0;  // 0: no more
  int32_t first_feature = 0;
  int32_t padded_rows = 0;
};

struct alignas(1024) GroupedShared {
  uint8_t stages[kProductStages][kGroupedStageBytes];
  uint8_t outputs[2][kGroupedOutputBytes];
  alignas(16) GroupedTask tasks[kProductStages];
  ProductBarriers barriers;
  uint64_t tickets[kGroupedTickets];  // for the CTA that does not draw: number, ticket

  __device__ __forceinline__ uint32_t Matrix(int stage) const {
    return SharedAddress(stages[stage]);
  }
  __device__ __forceinline__ uint32_t Rows(int stage) const {
    return SharedAddress(stages[stage]) + kProductMatrixBytes;
  }
};
static_assert(sizeof(GroupedShared) <= 227 * 1024);

// Rows that a product is issued for: the numbers WgmmaRows has.
__device__ __forceinline__ int PaddedRows(int rows) {
  if (rows <= 8) return 8;
  if (rows <= 16) return 16;
  return (rows + 31) / 32 * 32;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_SHARED_CUH_
