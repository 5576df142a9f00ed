// A persistent kernel: one thread of a CTA brings tiles in, two warpgroups multiply them.
#include "kernels/cuda/grouped_consumer.cuh"
#include "kernels/cuda/grouped_producer.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kThreads = 384;
constexpr int kMultiplyRegisters = 232, kCopyRegisters = 40;
static_assert(2 * kMultiplyRegisters + kCopyRegisters <= 512);

template <bool swiglu>
__global__ void __launch_bounds__(kThreads, 1)
    GroupedHopperKernel(const __grid_constant__ GroupedHopperParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  GroupedShared& s = *reinterpret_cast<GroupedShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kGroupedStages; ++i) {
      BarrierInit(SharedAddress(&s.filled[i]), 1);
      BarrierInit(SharedAddress(&s.emptied[i]), kGroupedWarps);
    }
    FenceBarrierInit();
    FenceAsync();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) >> 7, 0);
  if (warpgroup == 2) {
    ShrinkRegisters<kCopyRegisters>();
    if (threadIdx.x == 256) GroupedProducer<swiglu>{p, s, {}, 0}.Run();
  } else {
    GrowRegisters<kMultiplyRegisters>();
    const int warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
    GroupedConsumer<swiglu>{p, s, warpgroup, warp, lane, {}}.Run();
  }
}

template <bool swiglu>
cudaError_t Launch(const GroupedHopperParams& params, int ctas, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(GroupedHopperKernel<swiglu>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           sizeof(GroupedShared));
  if (error != cudaSuccess) return error;
  GroupedHopperKernel<swiglu><<<ctas, kThreads, sizeof(GroupedShared), stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGroupedHopperKernel(const GroupedHopperParams& params, bool swiglu, int ctas,
                                      cudaStream_t stream) {
  return swiglu ? Launch<true>(params, ctas, stream) : Launch<false>(params, ctas, stream);
}

}  // namespace deltafill::kernels::cuda
