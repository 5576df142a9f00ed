// A persistent kernel: one thread of a CTA brings tiles in, two warpgroups
// multiply them.
#include "kernels/cuda/grouped_consumer.cuh"
#include "kernels/cuda/grouped_producer.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warpgroup_roles.cuh"

namespace deltafill::kernels::cuda {
namespace {

template <bool swiglu, int cluster>
__global__ void __launch_bounds__(kRolesThreads, 1)
    GroupedHopperKernel(const __grid_constant__ GroupedHopperParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  GroupedShared& s = *reinterpret_cast<GroupedShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    s.barriers.Init(8 * cluster);  // both warpgroups read each stage
    for (int i = 0; i < kGroupedTickets; ++i) s.tickets[i] = 0;
    FenceBarrierInit();
    FenceAsync();
  }
  if constexpr (cluster == 1) {
    __syncthreads();
  } else {
    ClusterSync();
  }
  RunRoles<232, 40>(
      [&] {
        const uint32_t rank = cluster == 1 ? 0 : static_cast<uint32_t>(ClusterRank());
        GroupedProducer<swiglu, cluster>{p, s, rank, {}, 0}.Run();
      },
      [&](int group, int warp, int lane) {
        GroupedConsumer<swiglu, cluster>{p, s, group, warp, lane, {s, lane, {}}}.Run();
      });
  // A CTA stays until no other writes to its shared memory.
  if constexpr (cluster > 1) ClusterSync();
}

template <bool swiglu, int cluster>
cudaError_t Launch(const GroupedHopperParams& params, int ctas, cudaStream_t stream) {
  return LaunchClusters(
      GroupedHopperKernel<swiglu, cluster>,
      {dim3(static_cast<unsigned>(ctas)), dim3(kRolesThreads), sizeof(GroupedShared), cluster},
      stream, params);
}

}  // namespace

cudaError_t LaunchGroupedHopperKernel(const GroupedHopperParams& params, bool swiglu, int cluster,
                                      int ctas, cudaStream_t stream) {
  if (cluster == 1) {
    return swiglu ? Launch<true, 1>(params, ctas, stream) : Launch<false, 1>(params, ctas, stream);
  }
  return swiglu ? Launch<true, 2>(params, ctas, stream) : Launch<false, 2>(params, ctas, stream);
}

}  // namespace deltafill::kernels::cuda
