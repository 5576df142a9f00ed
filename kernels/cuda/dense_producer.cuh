// The thread of the dense product that has the copy engine bring tiles in.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_PRODUCER_CUH_
#define DELTAFILL_KERNELS_CUDA_DENSE_PRODUCER_CUH_

#include "kernels/cuda/dense_hopper_shared.cuh"

namespace deltafill::kernels::cuda {

template <DenseKind kind>
struct DenseProducer {
  const DenseHopperParams& p;
  DenseShared& s;
  int rank;  // of the CTA in its cluster
  ProductStage stage;

  __device__ __forceinline__ void CopyMatrix(int block, int matrix_tile, uint32_t filled) const {
    const uint32_t to = s.Matrix(stage.index);
    if constexpr (kind == DenseKind::kSwiGlu) {
      TensorCopy(to, &p.matrix, block * 64, 0, 0, matrix_tile * 8, filled);
    } else {
      TensorCopy(to, &p.matrix, block * 64, matrix_tile * kDenseMatrixTile, filled);
    }
  }

  __device__ __forceinline__ void Run(int first, int step, int tiles) {
    const int half = rank * (kDenseTokenTile / 2);
    for (int index = first; index < tiles; index += step) {
      const DenseTile tile = DenseTileOf<kind>(p, index);
      const int matrix_tile = tile.matrix_tile + rank;
      const bool present = DenseHalves(p, matrix_tile) > 0;
      for (int block = 0; block < p.depth_blocks; ++block) {
        const uint32_t filled = SharedAddress(&s.barriers.filled[stage.index]);
        stage.WaitUntilEmptied(s.barriers);
        BarrierExpect(filled, kDenseTokenBytes + (present ? kProductMatrixBytes : 0));
        if (present) CopyMatrix(block, matrix_tile, filled);
        // Each CTA brings half of the rows to both.
        TensorCopyToAll(s.Rows(stage.index) + half * 128, &p.x, block * 64, tile.first_token + half,
                        filled, 3);
        stage.Step();
      }
    }
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_PRODUCER_CUH_
