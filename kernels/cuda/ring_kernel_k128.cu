#include "kernels/cuda/ring_chain.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/ring_prepare.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kThreads = kRingGroupsPerCta * kGroupThreads<128>;
constexpr int kPrepareBytes = kRingGroupsPerCta * sizeof(PrepareShared<128>);
constexpr int kSharedBytes =
    kPrepareBytes > RingChainLayout::kBytes ? kPrepareBytes : RingChainLayout::kBytes;
static_assert(kThreads == 512, "two chaining warpgroups and two that serve them");

// Registers of a chaining CTA's warpgroups: 2 x 224 + 40 + 24 = 4 x 128.
constexpr int kChainRegisters = 232, kMoverRegisters = 24, kLoaderRegisters = 24;

__global__ void __launch_bounds__(kThreads, 1) RingKernel(const __grid_constant__ RingParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  const int chain_ctas = p.stream_count * p.slices;
  if (static_cast<int>(blockIdx.x) >= chain_ctas) {
    if (!p.runs_preparation) return;
    RunPreparing(p, reinterpret_cast<PrepareShared<128>*>(shared_bytes), blockIdx.x - chain_ctas,
                 gridDim.x - chain_ctas);
    return;
  }
  if (!p.runs_chains) return;
  const RingChainPlace place{static_cast<int>(blockIdx.x) / p.slices,
                             static_cast<int>(blockIdx.x) % p.slices, p.slices == 1 ? 2 : 1};
  const RingBarriers barriers{SharedAddress(shared_bytes)};
  if (threadIdx.x == 0) {
    barriers.Init(place.chains);
    FenceAsync();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) >> 7, 0);
  if (warpgroup < 2) {
    GrowRegisters<kChainRegisters>();
    if (warpgroup < place.chains) {
      RunChaining(p, place, barriers, warpgroup, threadIdx.x & 127);
    }
  } else if (warpgroup == 2) {
    ShrinkRegisters<kMoverRegisters>();
    RunRowMover(p, place, barriers, threadIdx.x & 127);
  } else {
    ShrinkRegisters<kLoaderRegisters>();
    if ((threadIdx.x & 127) == 0) RunSlotLoader(p, place, barriers);
  }
}

}  // namespace

cudaError_t LaunchRing(const RingParams& params, int prepare_ctas, cudaStream_t stream) {
  cudaError_t error = cudaFuncSetAttribute(
      RingKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  RingParams copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(RingKernel),
                                     dim3(params.stream_count * params.slices + prepare_ctas),
                                     dim3(kThreads), arguments, kSharedBytes, stream);
}

}  // namespace deltafill::kernels::cuda
