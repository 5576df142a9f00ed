#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/step_product.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kWarps = 4, kStages = 2;
constexpr int kWarpTiles = 4, kWarpFeatures = kWarpTiles * kStepTileFeatures;
constexpr int kCtaTiles = kWarps * kWarpTiles, kCtaTilesLog2 = 4;
static_assert(kCtaTiles == 1 << kCtaTilesLog2 && kCtaTiles % kStepPartsMax == 0);

// Pieces of 16 bytes of a row and the row 8 further, both of the lane's own copying, become a
// lane's operands: rows warp, warp + 4, ... of a tile are its warp's.
template <int row_tiles>
__device__ __forceinline__ void InterleaveRows(uint8_t* stage) {
  uint8_t* at = stage + (threadIdx.x >> 5) * kStepRowBytes + (threadIdx.x & 31) * 16;
#pragma unroll 1
  for (int t = 0; t < row_tiles; ++t, at += kStepTileRows * kStepRowBytes) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint4* const low = reinterpret_cast<uint4*>(at + i * kWarps * kStepRowBytes);
      uint4* const high = low + 8 * kStepRowBytes / 16;
      const uint4 a = *low, b = *high;
      *low = make_uint4(a.x, b.x, a.y, b.y);
      *high = make_uint4(a.z, b.z, a.w, b.w);
    }
  }
}

template <int row_tiles>
__device__ __forceinline__ void MultiplyHalf(const uint8_t* x, const HalfWeights<kWarpTiles>& w,
                                             float (&sums)[row_tiles][kWarpTiles][4]) {
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) {
#pragma unroll
    for (int t = 0; t < row_tiles; ++t) {
      const uint8_t* const at = x + t * kStepTileRows * kStepRowBytes + s * 64;
      const uint4 low = *reinterpret_cast<const uint4*>(at);
      const uint4 high = *reinterpret_cast<const uint4*>(at + 8 * kStepRowBytes);
      MultiplyStep({low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}, w, s, sums[t]);
    }
  }
}

// A CTA's part of the sums of its features, a quarter of them a warp.
template <int row_tiles>
__device__ __forceinline__ void SumChunks(const StepProduct& p, int cta_feature, int first_chunk,
                                          int end_chunk, int rows, uint8_t* stages,
                                          float (&sums)[row_tiles][kWarpTiles][4]) {
  constexpr int kStageBytes = row_tiles * kStepTileRows * kStepRowBytes;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int feature = cta_feature + warp * kWarpFeatures;
  // All warps share in copying x, those without features too: they read others'.
  WeightReader<kWarpTiles> weights(p, feature < p.out_features ? feature : cta_feature,
                                   first_chunk * kStepChunk);
  HalfWeights<kWarpTiles> first, second;
  weights.Load(0, first);
  weights.Load(1, second);
  if (first_chunk + 1 < end_chunk) weights.PrefetchNextChunk();
  RowReader<kWarps> x_rows(p, rows, warp, first_chunk);
  WaitForEarlierKernels();
  x_rows.Fill(stages);
  CommitCopies();
  if (first_chunk + 1 < end_chunk) x_rows.Fill(stages + kStageBytes);
  CommitCopies();
  const uint8_t* const x = stages + (lane >> 2) * kStepRowBytes + (lane & 3) * 16;
  int stage = 0;
#pragma unroll 1
  for (int chunk = first_chunk; chunk < end_chunk; ++chunk) {
    WaitCopies<kStages - 1>();
    InterleaveRows<row_tiles>(stages + stage);
    __syncthreads();
    weights.NextChunk();
    MultiplyHalf<row_tiles>(x + stage, first, sums);
    if (chunk + 1 < end_chunk) weights.Load(0, first);
    MultiplyHalf<row_tiles>(x + stage + kStepHalf * 2, second, sums);
    if (chunk + 1 < end_chunk) weights.Load(1, second);
    __syncthreads();
    if (chunk + kStages < end_chunk) x_rows.Fill(stages + stage);
    CommitCopies();
    stage = kStageBytes - stage;
  }
}

// A CTA for one part of the sums of 128 features. Part q then finishes 16 / parts of their tiles,
// whose sums all parts send to its shared memory.
template <int row_tiles>
__global__ void __launch_bounds__(kWarps * 32, 2)
    ManyRowsKernel(const __grid_constant__ StepKernelParams params) {
  extern __shared__ __align__(16) uint8_t shared[];
  LetNextKernelStart();
  ArriveAtClusterRelaxed();
  int cta = 0;
  const PlannedProduct& planned = ProductOfCta(params, &cta);
  const StepProduct& p = planned.product;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, log2 = planned.parts_log2;
  const int part = cta & ((1 << log2) - 1);
  const int cta_feature = (cta >> log2) * kCtaTiles * kStepTileFeatures;
  const bool present = cta_feature < p.out_features;  // the cluster's last CTAs may have none
  float sums[row_tiles][kWarpTiles][4] = {};
  if (present) {
    SumChunks<row_tiles>(p, cta_feature, (part * planned.chunks) >> log2,
                         ((part + 1) * planned.chunks) >> log2, params.rows, shared, sums);
  }
  float4* const part_sums =
      reinterpret_cast<float4*>(shared + kStages * row_tiles * kStepTileRows * kStepRowBytes);
  const int own_log2 = kCtaTilesLog2 - log2, own_tiles = 1 << own_log2;
  const int first_rank = ClusterRank() - part;
  WaitForCluster();  // all CTAs have started
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) {
    const int tile = warp * kWarpTiles + i;
    const int slot = (part * own_tiles + (tile & (own_tiles - 1))) * row_tiles;
    const uint32_t there = AddressInCluster(SharedAddress(part_sums + slot * 32 + lane),
                                            first_rank + (tile >> own_log2));
#pragma unroll
    for (int t = 0; t < row_tiles; ++t) StoreInCluster(there + t * 512, sums[t][i]);
  }
  ArriveAtCluster();
  const int own_feature = cta_feature + part * own_tiles * kStepTileFeatures;
  const int items = present ? own_tiles * row_tiles : 0;
  float start[4] = {};
  LoadFirstStart<row_tiles>(p, params.rows, own_feature, items, start);
  WaitForCluster();
  AddParts<row_tiles, kWarps>(p, params.rows, own_feature, items, 1 << log2, start, part_sums);
}

template <int row_tiles>
cudaError_t Launch(const StepKernelParams& params, cudaStream_t stream) {
  constexpr int kBytes = row_tiles * (kStages * kStepTileRows * kStepRowBytes +
                                      kCtaTiles * 32 * static_cast<int>(sizeof(float4)));
  const cudaError_t error = cudaFuncSetAttribute(
      ManyRowsKernel<row_tiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  return LaunchOverlapped(ManyRowsKernel<row_tiles>,
                          {static_cast<unsigned>(params.ctas), kWarps * 32, kBytes, params.cluster},
                          stream, params);
}

}  // namespace

cudaError_t LaunchManyRows(const StepKernelParams& params, cudaStream_t stream) {
  if (params.rows <= 16) return Launch<1>(params, stream);
  if (params.rows <= 32) return Launch<2>(params, stream);
  return Launch<4>(params, stream);
}

}  // namespace deltafill::kernels::cuda
