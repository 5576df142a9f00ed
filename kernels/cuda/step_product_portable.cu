// Decoding's products on every card: the parts of a sum are warps of one CTA.
#include "kernels/cuda/step_product_portable.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kStages = 2;
constexpr int kWarpFeatures = kWarpTiles * kStepTileFeatures;
constexpr int kStageBytes = kPortableStepRows * kStepRowBytes;
constexpr int kSharedBytes = kStepWarps * kStages * kStageBytes;
static_assert(kStepWarps == kStepPartsMax && kPortableStepRows == 8);

__device__ __forceinline__ void MultiplyHalf(const uint8_t* x, const HalfWeights& w,
                                             float (&sums)[kWarpTiles][4]) {
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) {
    MultiplyStep(*reinterpret_cast<const uint4*>(x + s * 64), w, s, sums);
  }
}

// A warp's part of the sums of its features. Its chunks of x are its own, so that no warp waits
// for another.
__device__ __forceinline__ void SumChunks(const StepProduct& p, int first_feature, int first_chunk,
                                          int end_chunk, int rows, uint8_t* stages,
                                          float (&sums)[kWarpTiles][4]) {
  const int lane = threadIdx.x & 31;
  WeightReader weights(p, first_feature, first_chunk * kStepChunk);
  HalfWeights first, second;
  weights.Load(0, first);
  weights.Load(1, second);
  RowReader x_rows(p, rows, first_chunk);
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
    __syncwarp();
    weights.NextChunk();
    MultiplyHalf(x + stage, first, sums);
    if (chunk + 1 < end_chunk) weights.Load(0, first);
    MultiplyHalf(x + stage + kStepHalf * 2, second, sums);
    if (chunk + 1 < end_chunk) weights.Load(1, second);
    __syncwarp();
    if (chunk + kStages < end_chunk) x_rows.Fill(stages + stage);
    CommitCopies();
    stage = kStageBytes - stage;
  }
}

__global__ void __launch_bounds__(kStepWarps * 32, 2)
    PortableStepKernel(const __grid_constant__ StepKernelParams params) {
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float2 part_sums[kStepWarps * kWarpTiles * 32];
  LetNextKernelStart();
  int cta = 0;
  const PlannedProduct& planned = ProductOfCta(params, &cta);
  const StepProduct& p = planned.product;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, log2 = planned.parts_log2;
  const int part = warp & ((1 << log2) - 1), place = warp >> log2;
  const int cta_tiles = (kStepWarps * kWarpTiles) >> log2;
  const int cta_feature = cta * cta_tiles * kStepTileFeatures;
  const int feature = cta_feature + place * kWarpFeatures;
  float sums[kWarpTiles][4] = {};
  if (feature < p.out_features) {
    SumChunks(p, feature, (part * planned.chunks) >> log2, ((part + 1) * planned.chunks) >> log2,
              params.rows, shared + warp * kStages * kStageBytes, sums);
  } else {
    WaitForEarlierKernels();
  }
  float2* const own = part_sums + (part * cta_tiles + place * kWarpTiles) * 32 + lane;
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) {
    own[i * 32] = make_float2(sums[i][0], sums[i][1]);
  }
  float start[2] = {};
  LoadFirstStart(p, params.rows, cta_feature, cta_tiles, start);
  __syncthreads();
  AddParts(p, params.rows, cta_feature, cta_tiles, 1 << log2, start, part_sums);
}

}  // namespace

cudaError_t LaunchPortableStep(const StepKernelParams& params, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      PortableStepKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  return LaunchOverlapped(PortableStepKernel,
                          {static_cast<unsigned>(params.ctas), kStepWarps * 32, kSharedBytes},
                          stream, params);
}

}  // namespace deltafill::kernels::cuda
