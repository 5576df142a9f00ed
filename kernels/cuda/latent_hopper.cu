#include "kernels/cuda/latent_hopper.h"

#include "kernels/cuda/latent_hopper_shared.cuh"
#include "kernels/cuda/warpgroup_roles.cuh"
#include "kernels/cuda/wgmma_rows.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kRows = 64;  // of a warpgroup
static_assert(kBlockTokens == kRows);

// A warpgroup's 64 rows in the layout of accumulators: a thread has rows lane / 4 and lane / 4 + 8
// of its warp's 16. Scores are kept unscaled.
struct AttendWarpgroup {
  const LatentHopperParams& p;
  AttendHopperShared& s;
  int group, warp, lane, head;
  int64_t first_row;  // of the call; may be past the last
  int64_t block;      // its position
  int tiles;          // of the CTA
  int own_tiles;      // that its rows see

  float sums[64];
  float scores[64];
  uint32_t weights[32];
  float largest[2], total[2];

  __device__ __forceinline__ int Row(int half) const { return warp * 16 + (lane >> 2) + half * 8; }
  __device__ __forceinline__ int64_t Carried(int half) const {
    return head * LatentHopperPaddedRows(p.chunk.rows) + first_row + Row(half);
  }

  __device__ __forceinline__ void GiveBack(uint64_t* emptied) const {
    if (lane == 0) BarrierArrive(SharedAddress(emptied));
  }

  __device__ __forceinline__ void LoadCarried() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 softmax = p.chunk.softmax[Carried(half)];
      largest[half] = softmax.x;
      total[half] = softmax.y;
      const float* const from = p.chunk.sums + Carried(half) * 128 + (lane & 3) * 2;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        const float2 pair = *reinterpret_cast<const float2*>(from + n * 8);
        sums[n * 4 + half * 2] = pair.x;
        sums[n * 4 + half * 2 + 1] = pair.y;
      }
    }
  }

  __device__ __forceinline__ void StoreCarried() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if ((lane & 3) == 0) p.chunk.softmax[Carried(half)] = make_float2(largest[half], total[half]);
      float* const to = p.chunk.sums + Carried(half) * 128 + (lane & 3) * 2;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        *reinterpret_cast<float2*>(to + n * 8) =
            make_float2(sums[n * 4 + half * 2], sums[n * 4 + half * 2 + 1]);
      }
    }
  }

  __device__ __forceinline__ void StoreOutputs() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first_row + Row(half);
      if (row >= p.chunk.rows) continue;
      const float factor = 1.0f / total[half];
      __nv_bfloat16* const o = p.chunk.o + row * p.chunk.o_stride + head * 128 + (lane & 3) * 2;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        StoreGlobal(o + n * 8,
                    PackBf16(sums[n * 4 + half * 2] * factor, sums[n * 4 + half * 2 + 1] * factor));
      }
    }
  }

  __device__ __forceinline__ void IssueScores(int tile) {
    const int stage = AttendStage(tile);
    BarrierWait(SharedAddress(&s.k_filled[stage]), AttendParity(tile));
    WgmmaFence();
#pragma unroll
    for (int panel = 0; panel < kAttendQueryPanels; ++panel) {
      const uint64_t q = TileDescriptor(SharedAddress(s.q[panel]) + group * kRows * 128, 16);
      const uint64_t k = TileDescriptor(SharedAddress(s.k[stage][panel]), 16);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        WgmmaRows<128>::Multiply(scores, Advance(q, step * 32), Advance(k, step * 32),
                                 panel > 0 || step > 0);
      }
    }
    WgmmaCommit();
  }

  __device__ __forceinline__ void IssueValues(int tile) {
    const int stage = AttendStage(tile);
    BarrierWait(SharedAddress(&s.v_filled[stage]), AttendParity(tile));
    WgmmaFence();
    const uint64_t v = TileDescriptor(SharedAddress(s.v[stage][0]), kAttendPanel);
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      WgmmaColumns128(sums, &weights[step * 4], Advance(v, step * 2048));
    }
    WgmmaCommit();
  }

  // Of keys after the row's own: the last tile that its rows see may have some.
  __device__ __forceinline__ void Mask(int tile) {
    const int64_t first_key = p.chunk.chunk_begin + static_cast<int64_t>(tile) * kLatentHopperRows;
    if (first_key + kLatentHopperRows <= block) return;
    const int ahead = static_cast<int>(block - first_key);  // of the first row over the first key
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int key = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);
      if (key > ahead + Row((i >> 1) & 1)) scores[i] = -INFINITY;
    }
  }

  // Scores become weights; totals are rescaled to the new largest score, sums by `rescale` later.
  __device__ __forceinline__ void Soften(float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = largest[half];
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        high = fmaxf(high, fmaxf(scores[n * 4 + half * 2], scores[n * 4 + half * 2 + 1]));
      }
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      // Both products rounded, never contracted: the factor is 1 exactly where `high` stays, or old
      // keys would fade over thousands of tiles. 0 at the first tile.
      const float scale = p.chunk.scale_log2, offset = __fmul_rn(high, scale);
      rescale[half] = Exp2(__fmul_rn(largest[half], scale) - offset);
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
#pragma unroll
        for (int i = n * 4 + half * 2; i < n * 4 + half * 2 + 2; ++i) {
          scores[i] = Exp2(fmaf(scores[i], scale, -offset));
          sum += scores[i];
        }
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      total[half] = fmaf(total[half], rescale[half], sum);
      largest[half] = high;
    }
  }

  __device__ __forceinline__ void Rescale(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[i] *= rescale[(i >> 1) & 1];
  }
  __device__ __forceinline__ void PackWeights() {
#pragma unroll
    for (int i = 0; i < 32; ++i) weights[i] = PackBf16(scores[2 * i], scores[2 * i + 1]);
  }

  // The next tile's scores are softened while this tile's values are added.
  __device__ __forceinline__ void WalkTiles() {
    float rescale[2];
    IssueScores(0);
    WgmmaWait<0>();
    Pin(scores);
    GiveBack(&s.k_emptied[0]);
    Mask(0);
    Soften(rescale);
    Rescale(rescale);
    PackWeights();
    for (int tile = 1; tile < own_tiles; ++tile) {
      IssueScores(tile);
      IssueValues(tile - 1);
      WgmmaWait<1>();
      Pin(scores);
      GiveBack(&s.k_emptied[AttendStage(tile)]);
      if (tile + 1 == own_tiles) Mask(tile);
      Soften(rescale);
      WgmmaWait<0>();
      Pin(sums);
      Pin(weights);
      GiveBack(&s.v_emptied[AttendStage(tile - 1)]);
      Rescale(rescale);
      PackWeights();
    }
    IssueValues(own_tiles - 1);
    WgmmaWait<0>();
    Pin(sums);
    GiveBack(&s.v_emptied[AttendStage(own_tiles - 1)]);
  }

  __device__ __forceinline__ void Run() {
    if (own_tiles > 0) {
      if (p.chunk.chunk_begin > 0) {
        LoadCarried();
      } else {
        largest[0] = largest[1] = -INFINITY;
        total[0] = total[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < 64; ++i) sums[i] = 0.0f;
      }
#pragma unroll
      for (int i = 0; i < 64; ++i) scores[i] = 0.0f;
      BarrierWait(SharedAddress(&s.q_filled), 0);
      WalkTiles();
      if (block >= p.chunk.chunk_end) {
        StoreCarried();
      } else {
        StoreOutputs();
      }
    }
    for (int tile = own_tiles; tile < tiles; ++tile) {  // the other warpgroup's
      BarrierWait(SharedAddress(&s.k_filled[AttendStage(tile)]), AttendParity(tile));
      GiveBack(&s.k_emptied[AttendStage(tile)]);
      BarrierWait(SharedAddress(&s.v_filled[AttendStage(tile)]), AttendParity(tile));
      GiveBack(&s.v_emptied[AttendStage(tile)]);
    }
  }
};

// Tiles of the chunk that the 64 rows from `first_row` on see.
__device__ __forceinline__ int TilesOf(const LatentChunkParams& c, int64_t first_row) {
  const int64_t block = c.first_token + first_row;
  if (block < c.chunk_begin || first_row >= c.rows) return 0;  // finished before, or none
  const int64_t last = min(block, c.chunk_end - 1);
  return static_cast<int>((last - c.chunk_begin) / kLatentHopperRows) + 1;
}

__global__ void __launch_bounds__(kRolesThreads, 1)
    AttendHopperKernel(const __grid_constant__ LatentHopperParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  AttendHopperShared& s = *reinterpret_cast<AttendHopperShared*>(shared_bytes);
  if (threadIdx.x == 0) s.Init();
  __syncthreads();
  const int head = blockIdx.y;
  // Panels with the most keys first.
  const int64_t panel =
      p.chunk.first_panel * kRows / kLatentHopperRows + (gridDim.x - 1 - blockIdx.x);
  const int64_t first_row = panel * kLatentHopperRows;
  const int tiles = max(TilesOf(p.chunk, first_row), TilesOf(p.chunk, first_row + kRows));
  RunRoles<240, 24>(
      [&] { FillAttendTiles(p, s, static_cast<int>(first_row), head, tiles); },
      [&](int group, int warp, int lane) {
        const int64_t own_row = first_row + group * kRows, block = p.chunk.first_token + own_row;
        const int own_tiles = TilesOf(p.chunk, own_row);
        AttendWarpgroup{p, s, group, warp, lane, head, own_row, block, tiles, own_tiles}.Run();
      });
}

}  // namespace

cudaError_t LaunchLatentHopperKernel(const LatentHopperParams& params, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      AttendHopperKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(AttendHopperShared));
  if (error != cudaSuccess) return error;
  const LatentChunkParams& c = params.chunk;
  const int64_t first = c.first_panel * kRows / kLatentHopperRows;
  const int64_t panels = LatentHopperPaddedRows(c.rows) / kLatentHopperRows - first;
  const dim3 grid(static_cast<unsigned>(panels), static_cast<unsigned>(c.shape.heads));
  AttendHopperKernel<<<grid, kRolesThreads, sizeof(AttendHopperShared), stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
