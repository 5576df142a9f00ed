#include "kernels/cuda/gated_norm_hopper.h"

#include "kernels/cuda/log2e.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/cuda/wgmma_rows.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kHalfBytes = kGatedNormTokens * 128;       // 64 columns of a tile
constexpr int kMatrixHalfBytes = kGatedNormWidth * 128;  // and of the matrix

template <int stages>
struct GatedNormRing {
  uint8_t z[stages][2][kHalfBytes];
  uint8_t o[stages][2][kHalfBytes];  // read, then replaced by what is written
};
template <int warpgroups, int stages>
struct alignas(1024) GatedNormShared {
  uint8_t matrix[2][kMatrixHalfBytes];
  GatedNormRing<stages> rings[warpgroups];
  float weight[kGatedNormWidth];
  float bias[kGatedNormWidth];
  uint64_t matrix_filled;
  uint64_t filled[warpgroups][stages];
};

template <int warpgroups, int stages>
struct GatedNormTiles {
  const GatedNormParams& p;
  GatedNormShared<warpgroups, stages>& s;
  GatedNormRing<stages>& ring;
  int head, group, warp, lane;  // group: the warpgroup

  __device__ __forceinline__ void CopyTile(int tile, int stage) const {
    const uint32_t filled = SharedAddress(&s.filled[group][stage]);
    BarrierExpect(filled, 4 * kHalfBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      TensorCopy(SharedAddress(ring.z[stage][half]), &p.z, half * 64, tile * kGatedNormTokens,
                 filled);
      TensorCopy(SharedAddress(ring.o[stage][half]), &p.o, head * kGatedNormWidth + half * 64,
                 tile * kGatedNormTokens, filled);
    }
  }

  // 8 channels of a row of the warp's 16; lanes 8i to 8i + 7 name the rows of matrix i: rows 0 to 7
  // and 8 to 15 of piece n, then of piece n + 1.
  __device__ __forceinline__ uint32_t PieceOf(int stage, int n) const {
    const int row = warp * 16 + (lane & 15), piece = n + (lane >> 4);
    return SwizzledPiece(SharedAddress(ring.o[stage][piece >> 3]), row, piece & 7);
  }

  __device__ __forceinline__ void Multiply(int stage, float (&d)[64]) const {
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const uint64_t a = TileDescriptor(SharedAddress(ring.z[stage][step >> 2]), 16);
      const uint64_t b = TileDescriptor(SharedAddress(s.matrix[step >> 2]), 16);
      WgmmaRows<kGatedNormWidth>::Multiply(d, Advance(a, (step & 3) * 32),
                                           Advance(b, (step & 3) * 32), step > 0);
    }
    WgmmaCommit();
  }

  __device__ __forceinline__ float2 SquaresOf(const uint32_t (&o)[8][4]) const {
    float2 squares = {0.0f, 0.0f};  // of rows lane / 4 and 8 more
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        squares.x = fmaf(LowBf16(o[n][i]), LowBf16(o[n][i]), squares.x);
        squares.x = fmaf(HighBf16(o[n][i]), HighBf16(o[n][i]), squares.x);
        squares.y = fmaf(LowBf16(o[n][i + 1]), LowBf16(o[n][i + 1]), squares.y);
        squares.y = fmaf(HighBf16(o[n][i + 1]), HighBf16(o[n][i + 1]), squares.y);
      }
    }
#pragma unroll
    for (int offset = 2; offset > 0; offset >>= 1) {
      squares.x += __shfl_xor_sync(~0u, squares.x, offset);
      squares.y += __shfl_xor_sync(~0u, squares.y, offset);
    }
    return squares;
  }

  __device__ __forceinline__ uint32_t Gated(uint32_t o, float factor, const float2& weight,
                                            float gate0, float gate1) const {
    const float y0 = LowBf16(o) * (factor * weight.x);
    const float y1 = HighBf16(o) * (factor * weight.y);
    return PackBf16(y0 * Reciprocal(1.0f + Exp2(-gate0 * kLog2E)),
                    y1 * Reciprocal(1.0f + Exp2(-gate1 * kLog2E)));
  }

  // `o` becomes y.
  __device__ __forceinline__ void Gate(const float (&d)[64], const float2 (&weight)[16],
                                       float2 factor, uint32_t (&o)[8][4]) const {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float* const g = &d[n * 4];
      uint32_t* const y = &o[n >> 1][(n & 1) * 2];
      float2 bias = {0.0f, 0.0f};
      if (p.bias != nullptr) {
        bias = *reinterpret_cast<const float2*>(&s.bias[n * 8 + (lane & 3) * 2]);
      }
      y[0] = Gated(y[0], factor.x, weight[n], g[0] + bias.x, g[1] + bias.y);
      y[1] = Gated(y[1], factor.y, weight[n], g[2] + bias.x, g[3] + bias.y);
    }
  }

  __device__ __forceinline__ void RunTile(int stage, const float2 (&weight)[16]) const {
    float d[64];
    uint32_t o[8][4];
    float2 factor;
    Multiply(stage, d);
    // Beside the product.
#pragma unroll
    for (int i = 0; i < 8; ++i) LoadMatrix4(PieceOf(stage, i * 2), o[i]);
    const float2 squares = SquaresOf(o);
    factor.x = rsqrtf(squares.x / static_cast<float>(kGatedNormWidth) + p.eps);
    factor.y = rsqrtf(squares.y / static_cast<float>(kGatedNormWidth) + p.eps);
    WgmmaWait<0>();
    Pin(d);
    Gate(d, weight, factor, o);
#pragma unroll
    for (int i = 0; i < 8; ++i) StoreMatrix4(PieceOf(stage, i * 2), o[i]);
  }

  __device__ __forceinline__ void Run(int first, int step) const {
    const bool leads = warp == 0 && lane == 0;
    const auto fill = [&](int tile, int stage) {
      if (leads && tile < p.token_tiles) CopyTile(tile, stage);
    };
    for (int i = 0; i < stages; ++i) fill(first + i * step, i);
    float2 weight[16];  // of the thread's columns
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      weight[n] = *reinterpret_cast<const float2*>(&s.weight[n * 8 + (lane & 3) * 2]);
    }
    BarrierWait(SharedAddress(&s.matrix_filled), 0);
    RingPlace<stages> place;
    for (int tile = first; tile < p.token_tiles; tile += step) {
      const int stage = place.index;
      BarrierWait(SharedAddress(&s.filled[group][stage]), place.parity);
      RunTile(stage, weight);
      FenceAsyncShared();
      GroupBarrier(group + 1, 128);
      if (leads) {
        for (int half = 0; half < 2; ++half) {
          TensorStore(&p.y, head * kGatedNormWidth + half * 64, tile * kGatedNormTokens,
                      SharedAddress(ring.o[stage][half]));
        }
        CommitTensorStores();
      }
      // A stage is filled again once the copy engine has read it: with three, the one before.
      constexpr int kBehind = stages > 2 ? stages - 2 : 0;
      constexpr int kAhead = stages - kBehind;
      if (leads) WaitForTensorReads<kBehind>();
      if (tile >= first + kBehind * step) {
        fill(tile + kAhead * step, (stage + stages - kBehind) % stages);
      }
      place.Step();
    }
    if (leads) WaitForTensorStores();
  }
};

template <int warpgroups, int stages>
__global__ void __launch_bounds__(warpgroups * 128)
    GatedNormKernel(const __grid_constant__ GatedNormParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& s = *reinterpret_cast<GatedNormShared<warpgroups, stages>*>(shared_bytes);
  const int head = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    BarrierInit(SharedAddress(&s.matrix_filled), 1);
    for (auto& of_group : s.filled) {
      for (uint64_t& filled : of_group) BarrierInit(SharedAddress(&filled), 1);
    }
    FenceBarrierInit();
    FenceAsync();
    const uint32_t filled = SharedAddress(&s.matrix_filled);
    BarrierExpect(filled, 2 * kMatrixHalfBytes);
    for (int half = 0; half < 2; ++half) {
      TensorCopy(SharedAddress(s.matrix[half]), &p.matrix, half * 64, head * kGatedNormWidth,
                 filled);
    }
  }
  const int channel = static_cast<int>(threadIdx.x);
  if (channel < kGatedNormWidth) {
    s.weight[channel] = p.weight[channel];
    s.bias[channel] = p.bias != nullptr ? p.bias[head * kGatedNormWidth + channel] : 0.0f;
  }
  __syncthreads();
  const int group = WarpgroupIndex();
  const int warp = static_cast<int>(threadIdx.x) >> 5 & 3,
            lane = static_cast<int>(threadIdx.x) & 31;
  GatedNormTiles<warpgroups, stages>{p, s, s.rings[group], head, group, warp, lane}.Run(
      static_cast<int>(blockIdx.y) * warpgroups + group, static_cast<int>(gridDim.y) * warpgroups);
}

}  // namespace

cudaError_t LaunchGatedNorm(const GatedNormParams& params, int heads, int groups,
                            cudaStream_t stream) {
  constexpr int kWarpgroups = 1, kStages = 2;
  constexpr int kSharedBytes = sizeof(GatedNormShared<kWarpgroups, kStages>);
  static_assert(kGatedNormCtas * (kSharedBytes + 1024) <= 228 * 1024);
  const auto kernel = GatedNormKernel<kWarpgroups, kStages>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  kernel<<<dim3(static_cast<unsigned>(heads), static_cast<unsigned>(groups)), kWarpgroups * 128,
           kSharedBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
