#include "kernels/cuda/ring_chain.cuh"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/ring_prepare.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kGroup = kGroupThreads<128>;
static_assert(kThreads == 2 * kGroup);

// A chaining CTA: the chain's tiles, then one preparing group. Otherwise two groups.
constexpr int kChainGroupOffset = RingChainLayout::kBytes;
constexpr int kTableOffset = kChainGroupOffset + sizeof(RingGroupShared);
static_assert(kTableOffset >= static_cast<int>(2 * sizeof(RingGroupShared)));
constexpr int kSharedBytes = kTableOffset + sizeof(RingTable);
static_assert(kSharedBytes <= 227 * 1024);

// Registers a thread of a chaining CTA's warpgroups: chain, service, and two that prepare.
constexpr int kChainRegisters = 240, kServiceRegisters = 40, kPrepareRegisters = 112;
static_assert(kChainRegisters + kServiceRegisters + 2 * kPrepareRegisters <= 4 * 128);

// The groups of chaining CTAs serve their own streams, two a stream; the others are dealt evenly.
// The rest of that deal goes round, which needs streams of one length.
__device__ __forceinline__ RingTurn TurnOf(const RingParams& p, bool chains, int cta, int half) {
  if (chains) return {cta / kRingSlices, 0};
  const int chain_ctas = p.stream_count * kRingSlices;
  const int others = static_cast<int>(gridDim.x) - chain_ctas;
  const int group = (cta - chain_ctas) + half * others;
  const int rest = 2 * others % p.stream_count;
  const bool goes_round = p.even_streams && group >= 2 * others - rest;
  return {group % p.stream_count, goes_round ? rest : 0};
}

__global__ void __launch_bounds__(kThreads, 1) RingKernel(const __grid_constant__ RingParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  const int chain_ctas = p.stream_count * kRingSlices;
  const int cta = blockIdx.x;
  const bool chains = cta < chain_ctas;
  const RingChainPlace place{cta / kRingSlices, cta % kRingSlices};
  const RingBarriers barriers{SharedAddress(shared_bytes)};
  if (chains && threadIdx.x == 0) {
    barriers.Init();
    FenceAsync();
  }
  RingTable& table = *reinterpret_cast<RingTable*>(shared_bytes + kTableOffset);
  if (RingTable::Fits(p)) table.Fill(p, threadIdx.x);
  __syncthreads();
  const int warpgroup = WarpgroupIndex();
  if (chains && warpgroup == 0) {
    GrowRegisters<kChainRegisters>();
    if (p.runs_chains) RunChaining(p, place, barriers, threadIdx.x & 127);
  } else if (chains && warpgroup == 1) {
    ShrinkRegisters<kServiceRegisters>();
    const int warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
    if (!p.runs_chains) return;
    if (warp == 0) RunSlotLoader(p, place, barriers, lane);
    if (warp == 1 && lane == 0) RunSlotReturner(p, place, barriers);
    if (warp == 2) RunValueMover(p, place, barriers, lane);
    if (warp == 3) RunOutputMover(p, place, barriers, lane);
  } else {
    ShrinkRegisters<kPrepareRegisters>();
    const int half = threadIdx.x / kGroup;
    uint8_t* shared = shared_bytes + (chains ? kChainGroupOffset : half * sizeof(RingGroupShared));
    const int number = cta + (chains || half == 0 ? 0 : static_cast<int>(gridDim.x));
    if (p.runs_preparation && (!chains || p.chains_prepare)) {
      RunPreparing(p, *reinterpret_cast<RingGroupShared*>(shared), table, number,
                   TurnOf(p, chains, cta, half), threadIdx.x % kGroup, half + 1);
    }
  }
}

}  // namespace

cudaError_t LaunchRing(const RingParams& params, int ctas, cudaStream_t stream) {
  cudaError_t error =
      cudaFuncSetAttribute(RingKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  RingParams copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(RingKernel), dim3(ctas),
                                     dim3(kThreads), arguments, kSharedBytes, stream);
}

}  // namespace deltafill::kernels::cuda
