// Shared memory of the grouped product's CTA, and the roles' common words.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_SHARED_CUH_

#include "kernels/cuda/grouped_hopper.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kGroupedStages = 4;
inline constexpr int kGroupedMatrixRows = 128;  // of a CTA's tile
inline constexpr int kGroupedMatrixBytes = kGroupedMatrixRows * 128;
inline constexpr int kGroupedStageBytes = kGroupedMatrixBytes + kTokenTileRows * 128;
inline constexpr int kGroupedOutputBytes = 16384;  // of a multiplying warpgroup
inline constexpr int kGroupedTickets = 8;          // that a cluster may have drawn and not used
inline constexpr int kGroupedWarps = 8;            // that multiply

// What a CTA does with a token tile; travels with the tile's first stage.
struct GroupedTask {
  int32_t first_row = 0;
  int32_t rows = 0;  // 0: no more
  int32_t first_feature = 0;
  int32_t padded_rows = 0;
};

struct alignas(1024) GroupedShared {
  uint8_t stages[kGroupedStages][kGroupedStageBytes];
  uint8_t outputs[2][kGroupedOutputBytes];
  alignas(16) GroupedTask tasks[kGroupedStages];
  uint64_t filled[kGroupedStages];
  uint64_t emptied[kGroupedStages];
  uint64_t tickets[kGroupedTickets];  // for the CTA that does not draw: number,
                                      // ticket
};
static_assert(sizeof(GroupedShared) <= 227 * 1024);

// A place in the ring of stages.
struct GroupedRing {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Step() {
    if (++stage == kGroupedStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Rows that a product is issued for: the numbers WgmmaRows has.
__device__ __forceinline__ int PaddedRows(int rows) {
  if (rows <= 8) return 8;
  if (rows <= 16) return 16;
  return (rows + 31) / 32 * 32;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_HOPPER_SHARED_CUH_
