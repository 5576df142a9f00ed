// Decoding's products on the warpgroup matrix unit: the weight is its first operand, so that up to
// kStepRowsMax rows of x, its columns, cost no more instructions than one. Both come as boxes by
// the copy engine through rings in shared memory; weights are asked for before the kernel in front
// has ended.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/step_product_cta.cuh"
#include "kernels/cuda/step_product_finish.cuh"
#include "kernels/cuda/step_product_ring.cuh"
#include "kernels/cuda/wgmma_rows.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kConsumers = 128, kThreads = kConsumers + 64;
constexpr int kTileBytes = 64 * 128;  // of one instruction's features

// d[i] = the CTA's features [64 i, 64 i + 64) of its part, summed block after block.
template <int rows>
__device__ __forceinline__ void SumBlocks(StepShared<rows>& s, int blocks,
                                          float (&d)[2][rows / 2]) {
  RingPlace<StepShared<rows>::kWeightStages> weights, weights_before;
  RingPlace<StepShared<rows>::kRowStages> x_rows, x_rows_before;
  const bool speaks = (threadIdx.x & 31) == 0;
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    BarrierWait(SharedAddress(&s.weights_filled[weights.index]), weights.parity);
    BarrierWait(SharedAddress(&s.rows_filled[x_rows.index]), x_rows.parity);
    const uint64_t w = TileDescriptor(SharedAddress(s.weights[weights.index]), 16);
    const uint64_t x = TileDescriptor(SharedAddress(s.rows[x_rows.index]), 16);
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        WgmmaRows<rows>::Multiply(d[i], Advance(w, i * kTileBytes + step * 32),
                                  Advance(x, step * 32), block > 0 || step > 0);
      }
    }
    WgmmaCommit();
    if (block > 0) {
      WgmmaWait<1>();
      if (speaks) {
        BarrierArrive(SharedAddress(&s.weights_emptied[weights_before.index]));
        BarrierArrive(SharedAddress(&s.rows_emptied[x_rows_before.index]));
      }
      weights_before.Step();
      x_rows_before.Step();
    }
    weights.Step();
    x_rows.Step();
  }
  WgmmaWait<0>();
  Pin(d[0]);
  Pin(d[1]);
}

// A CTA's part of the sums of a tile of features.
struct StepShare {
  const StepHopperProduct& planned;
  int part, first_feature, first_block, blocks;
  bool present;  // the cluster's last CTAs may have nothing
};

__device__ __forceinline__ StepShare ShareOfCta(const StepHopperParams& p) {
  int cta = 0;
  const StepHopperProduct& planned = ProductOfCta(p, &cta);
  const int log2 = planned.parts_log2;
  StepShare share = {planned, cta & ((1 << log2) - 1)};
  // Of y: a CTA of a SwiGLU has as many gates, and their ups.
  share.first_feature =
      (cta >> log2) * (planned.product.swiglu ? kStepCtaFeatures / 2 : kStepCtaFeatures);
  share.present = share.first_feature < planned.product.y_features();
  share.first_block = (share.part * planned.blocks) >> log2;
  share.blocks = ((share.part + 1) * planned.blocks >> log2) - share.first_block;
  if (!share.present) share.blocks = 0;
  return share;
}

// The parts of a sum exchange what they have. The cluster's barrier is of all threads: all CTAs
// have started, and where sums take the place of stages are done with them.
template <int rows>
__device__ __forceinline__ void ExchangeSums(StepShared<rows>& s, const StepShare& share,
                                             const float (&d)[2][rows / 2], int warp) {
  if (!StepShared<rows>::kSumsApart) ArriveAtClusterRelaxed();
  WaitForCluster();
  const int log2 = share.planned.parts_log2;
  if (log2 == 0 || !share.present) return;
  SendSums<rows>(s.sums(), d, {share.planned.product.swiglu, warp}, ClusterRank() - share.part,
                 share.part, log2, &s.arrived);
  BarrierWait(SharedAddress(&s.arrived), 0);
}

template <int rows>
__global__ void __launch_bounds__(kThreads, StepShared<rows>::kCtas)
    StepHopperKernel(const __grid_constant__ StepHopperParams params) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  StepShared<rows>& s = *reinterpret_cast<StepShared<rows>*>(shared_bytes);
  LetNextKernelStart();
  if (threadIdx.x == kConsumers) s.Init();
  const bool clustered = params.cluster > 1;
  if (StepShared<rows>::kSumsApart && clustered) ArriveAtClusterRelaxed();
  const StepShare share = ShareOfCta(params);
  const StepProduct& p = share.planned.product;
  const int first_row = blockIdx.y * rows, own_rows = min(params.rows - first_row, rows);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) >> 5, 0);
  const int lane = threadIdx.x & 31;
  __syncthreads();
  if (warp >= kConsumers / 32) {
    if (warp > kConsumers / 32) {
      CopyRows<rows>(share.planned, s, first_row, own_rows, share.first_block, share.blocks, lane);
    } else if (lane == 0) {
      const int ups = share.first_feature + (p.swiglu ? p.y_features() : kStepBoxFeatures);
      CopyWeights<rows>(&share.planned.weight, s, share.first_feature, ups, share.first_block,
                        share.blocks);
    }
    __syncwarp();
    if (!StepShared<rows>::kSumsApart && clustered) ArriveAtClusterRelaxed();
    return;
  }
  const SumOwner<rows> owner(p, params.convolution, first_row, own_rows, share.first_feature,
                             share.part, share.planned.parts_log2);
  owner.PrefetchTails();
  WaitForEarlierKernels();
  owner.Prefetch();
  float d[2][rows / 2];
#pragma unroll
  for (int i = 0; i < rows / 2; ++i) d[0][i] = d[1][i] = 0.0f;
  SumBlocks<rows>(s, share.blocks, d);
  if (clustered) ExchangeSums<rows>(s, share, d, warp);
  GroupBarrier(1, kConsumers);  // all are done with the stages, which finished sums replace
  if (share.planned.parts_log2 > 0) {
    AddParts<rows>(s.sums(), share.planned.parts_log2, s.staged());
  } else {
    StageSums<rows>(d, {p.swiglu, warp}, s.staged());
  }
  GroupBarrier(1, kConsumers);
  if (share.present) owner.Store(s.staged());
}

template <int rows>
cudaError_t Launch(const StepHopperParams& params, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(StepShared<rows>));
  static_assert((kBytes + 1024) * StepShared<rows>::kCtas <= 228 * 1024);
  const auto kernel = StepHopperKernel<rows>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(params.ctas, (params.rows + rows - 1) / rows);
  return LaunchOverlapped(kernel, {grid, kThreads, kBytes, params.cluster}, stream, params);
}

}  // namespace

cudaError_t LaunchStepHopper(const StepHopperParams& params, cudaStream_t stream) {
  switch (params.cta_rows) {
    case 8:
      return Launch<8>(params, stream);
    case 16:
      return Launch<16>(params, stream);
    case 32:
      return Launch<32>(params, stream);
    default:
      return Launch<64>(params, stream);
  }
}

}  // namespace deltafill::kernels::cuda
