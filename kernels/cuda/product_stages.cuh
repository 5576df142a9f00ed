// What Hopper's dense and grouped products share: a ring of stages in shared memory, and the loop
// that multiplies what lies there. A stage holds 64 columns of 128 rows of the matrix and of a
// tile's rows; the copy engine fills it, the warps of the CTAs that read it give it back.
#ifndef DELTAFILL_KERNELS_CUDA_PRODUCT_STAGES_CUH_
#define DELTAFILL_KERNELS_CUDA_PRODUCT_STAGES_CUH_

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/cuda/wgmma_rows.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kProductStages = 4;
inline constexpr int kProductMatrixRows = 128;  // of a CTA's tile
inline constexpr int kProductMatrixBytes = kProductMatrixRows * 128;

struct ProductBarriers {
  uint64_t filled[kProductStages];
  uint64_t emptied[kProductStages];

  // By one thread, before the cluster's CTAs meet. `readers`: warps of the cluster that read a
  // stage.
  __device__ __forceinline__ void Init(int readers) {
    for (int i = 0; i < kProductStages; ++i) {
      BarrierInit(SharedAddress(&filled[i]), 1);
      BarrierInit(SharedAddress(&emptied[i]), readers);
    }
  }
};

struct ProductStage : RingPlace<kProductStages> {
  __device__ __forceinline__ void Skip(int blocks) {
    const int at = index + blocks;
    index = at % kProductStages;
    parity ^= static_cast<uint32_t>(at / kProductStages) & 1;
  }
  __device__ __forceinline__ void WaitUntilFilled(const ProductBarriers& barriers) const {
    BarrierWait(SharedAddress(&barriers.filled[index]), parity);
  }
  __device__ __forceinline__ void WaitUntilEmptied(const ProductBarriers& barriers) const {
    BarrierWait(SharedAddress(&barriers.emptied[index]), parity ^ 1);
  }
};

// A multiplying warpgroup's walk. Shared has the barriers and says where in shared memory a stage's
// parts are: barriers, Matrix(index), Rows(index).
template <typename Shared, int cluster>
struct ProductReader {
  Shared& s;
  int lane;
  ProductStage stage;

  __device__ __forceinline__ void WaitUntilFilled() const { stage.WaitUntilFilled(s.barriers); }

  // By each warp, to all CTAs of the cluster: each copies to all.
  __device__ __forceinline__ void GiveBack(int index) const {
    const uint32_t emptied = SharedAddress(&s.barriers.emptied[index]);
    if constexpr (cluster == 1) {
      if (lane == 0) BarrierArrive(emptied);
    } else {
      if (lane < cluster) BarrierArriveAt(emptied, lane);
    }
  }

  // d[i] = 64 of the matrix's rows, from first_row + 64 i on, times the tile's rows, summed over
  // all blocks of 64 columns. `all_filled` is called once the last has been.
  template <int rows, int parts, int held, typename AllFilled>
  __device__ __forceinline__ void Multiply(float (&d)[held][rows / 2], int first_row, int blocks,
                                           const AllFilled& all_filled) {
    int before = 0;
    for (int block = 0; block < blocks; ++block) {
      WaitUntilFilled();
      if (block + 1 == blocks) all_filled();
      const uint64_t a = TileDescriptor(s.Matrix(stage.index) + first_row * 128, 16);
      const uint64_t b = TileDescriptor(s.Rows(stage.index), 16);
      WgmmaFence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          WgmmaRows<rows>::Multiply(d[part], Advance(a, part * 64 * 128 + step * 32),
                                    Advance(b, step * 32), block > 0 || step > 0);
        }
      }
      WgmmaCommit();
      if (block > 0) {
        WgmmaWait<1>();
        GiveBack(before);
      }
      before = stage.index;
      stage.Step();
    }
    WgmmaWait<0>();
#pragma unroll
    for (int part = 0; part < parts; ++part) Pin(d[part]);
    GiveBack(before);
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PRODUCT_STAGES_CUH_
