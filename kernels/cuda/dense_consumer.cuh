// The warpgroups of the dense product that multiply. They take turns with the tiles, so what one
// does with its sums costs the matrix unit nothing. d[half][matrix row, token] of a thread is y
// transposed; a tile's 128 matrix rows are two halves.
#ifndef DELTAFILL_KERNELS_CUDA_DENSE_CONSUMER_CUH_
#define DELTAFILL_KERNELS_CUDA_DENSE_CONSUMER_CUH_

#include "kernels/cuda/dense_conv.cuh"
#include "kernels/cuda/dense_hopper_shared.cuh"
#include "kernels/cuda/swiglu.cuh"

namespace deltafill::kernels::cuda {

template <DenseKind kind>
struct DenseConsumer {
  static constexpr int kSums = kDenseTokenTile / 2;  // of a thread, of each half
  static constexpr bool kSwiGlu = kind == DenseKind::kSwiGlu;

  const DenseHopperParams& p;
  DenseShared& s;
  int rank, group, warp, lane;  // of the cluster; warpgroup, warp in it, lane in that
  ProductReader<DenseShared, kDenseCluster> reader;

  // A barrier tells its last round from the one before only, so a warpgroup waits for a stage no
  // sooner than the other has seen all of its own filled.
  static constexpr int kTurn = 3;  // named barriers 3 and 4
  __device__ __forceinline__ void TakeTurn() const { GroupBarrier(kTurn + group, 256); }
  __device__ __forceinline__ void PassTurn() const {
    ArriveAtGroupBarrier(kTurn + (group ^ 1), 256);
  }

  template <int halves>
  __device__ __forceinline__ void Multiply(float (&d)[2][kSums]) {
    TakeTurn();
    reader.template Multiply<kDenseTokenTile, halves>(d, 0, p.depth_blocks, [this] { PassTurn(); });
  }

  // Rows that only the cluster's other CTA multiplies.
  __device__ __forceinline__ void PassOver() {
    TakeTurn();
    for (int block = 0; block < p.depth_blocks; ++block) {
      reader.WaitUntilFilled();
      reader.GiveBack(reader.stage.index);
      reader.stage.Step();
    }
    PassTurn();
  }

  __device__ __forceinline__ uint32_t Outputs() const { return SharedAddress(s.outputs[group]); }

  // 64 features of all tokens to shared memory.
  __device__ __forceinline__ void StageSwiGlu(const float (&d)[2][kSums]) const {
    const int quarter = lane >> 3, of_eight = lane & 7;
#pragma unroll
    for (int n = 0; n < kDenseTokenTile / 8; n += 2) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const x = &d[i & 1][(n + (i >> 1)) * 4];
        pairs[i] = PackBf16(SiluTimes(x[0], x[2]), SiluTimes(x[1], x[3]));
      }
      StoreMatrix4Transposed(
          SwizzledPiece(Outputs(), (n + (quarter >> 1)) * 8 + of_eight, (quarter & 1) * 4 + warp),
          pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }

  // 64 features of a half, all tokens. `shifted`: rows start with the token after those that a
  // convolution looks back to; these come last.
  template <bool shifted>
  __device__ __forceinline__ void StageHalf(const float (&d)[kSums]) const {
    const int quarter = lane >> 3, of_eight = lane & 7;
#pragma unroll
    for (int n = 0; n < kDenseTokenTile / 8; n += 2) {
      const float* const x = &d[n * 4];
      int row = (n + (quarter >> 1)) * 8 + of_eight;
      if constexpr (shifted) {
        row += row < kDenseLookBack ? kDenseTokenTile - kDenseLookBack : -kDenseLookBack;
      }
      StoreMatrix4Transposed(SwizzledPiece(Outputs(), row, warp * 2 + (quarter & 1)),
                             PackBf16(x[0], x[1]), PackBf16(x[2], x[3]), PackBf16(x[4], x[5]),
                             PackBf16(x[6], x[7]));
    }
  }

  // Once the copy engine has taken what was there.
  __device__ __forceinline__ void BeginOutput() const {
    if (warp == 0 && lane == 0) WaitForTensorReads<0>();
    GroupBarrier(group + 1, 128);
  }
  __device__ __forceinline__ void EndOutput(const TensorMap* y, int feature, int token) const {
    FenceAsyncShared();
    GroupBarrier(group + 1, 128);
    if (warp != 0 || lane != 0) return;
    TensorStore(y, feature, token, Outputs());
    CommitTensorStores();
  }

  template <int half>
  __device__ __forceinline__ void WriteHalf(const float (&d)[kSums], int matrix_tile,
                                            int first_token) const {
    const int feature = matrix_tile * kDenseMatrixTile + half * 64;
    BeginOutput();
    if (matrix_tile < p.conv.matrix_tiles) {
      StageHalf<false>(d);
      GroupBarrier(group + 1, 128);
      DenseConvolution{p.conv, Outputs(), group + 1, warp, lane, feature, first_token}.Run();
      EndOutput(&p.conv.y, feature, first_token + kDenseLookBack);
    } else {
      StageHalf<true>(d);
      EndOutput(&p.y, feature, first_token + kDenseLookBack);
    }
  }

  __device__ __forceinline__ void RunTile(const DenseTile& tile) {
    const int matrix_tile = tile.matrix_tile + rank;
    const int halves = DenseHalves(p, matrix_tile);
    if (halves == 0) return PassOver();
    float d[2][kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) d[0][i] = d[1][i] = 0.0f;  // else registers are the loop's
    if (kSwiGlu || halves == 2) {
      Multiply<2>(d);
    } else {
      Multiply<1>(d);
    }
    if constexpr (kSwiGlu) {
      BeginOutput();
      StageSwiGlu(d);
      EndOutput(&p.y, matrix_tile * 64, tile.first_token);
    } else {
      WriteHalf<0>(d[0], matrix_tile, tile.first_token);
      if (halves == 2) WriteHalf<1>(d[1], matrix_tile, tile.first_token);
    }
  }

  __device__ __forceinline__ void Run(int first, int step, int tiles) {
    if (group == 1) {
      reader.stage.Skip(p.depth_blocks);
      PassTurn();  // the first is the other's
    }
    for (int index = first + group * step; index < tiles; index += 2 * step) {
      RunTile(DenseTileOf<kind>(p, index));
      reader.stage.Skip(p.depth_blocks);
    }
    if (warp == 0 && lane == 0) WaitForTensorStores();
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_DENSE_CONSUMER_CUH_
