// A persistent kernel: one thread of a CTA brings tiles in, two warpgroups multiply them, and the
// copy engine takes the results out.
#include "kernels/cuda/dense_consumer.cuh"
#include "kernels/cuda/dense_producer.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warpgroup_roles.cuh"

namespace deltafill::kernels::cuda {
namespace {

template <DenseKind kind>
__global__ void __launch_bounds__(kRolesThreads, 1)
    DenseHopperKernel(const __grid_constant__ DenseHopperParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  DenseShared& s = *reinterpret_cast<DenseShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    s.barriers.Init(4 * kDenseCluster);  // a stage is read by one warpgroup
    FenceBarrierInit();
    FenceAsync();
  }
  ClusterSync();
  const int rank = ClusterRank();
  const int first = static_cast<int>(blockIdx.x) / kDenseCluster;
  const int step = static_cast<int>(gridDim.x) / kDenseCluster;
  const int tiles = p.feature_groups * p.token_tiles;
  RunRoles<240, 24>(
      [&] {
        DenseProducer<kind>{p, s, rank, {}}.Run(first, step, tiles);
      },
      [&](int group, int warp, int lane) {
        DenseConsumer<kind>{p, s, rank, group, warp, lane, {s, lane, {}}}.Run(first, step, tiles);
      });
  ClusterSync();  // a CTA stays until no other writes to its shared memory
}

template <DenseKind kind>
cudaError_t Launch(const DenseHopperParams& params, int clusters, cudaStream_t stream) {
  const auto ctas = static_cast<unsigned>(clusters * kDenseCluster);
  return LaunchClusters(DenseHopperKernel<kind>,
                        {dim3(ctas), dim3(kRolesThreads), sizeof(DenseShared), kDenseCluster},
                        stream, params);
}

}  // namespace

cudaError_t LaunchDenseHopperKernel(const DenseHopperParams& params, DenseKind kind, int clusters,
                                    cudaStream_t stream) {
  if (kind == DenseKind::kSwiGlu) return Launch<DenseKind::kSwiGlu>(params, clusters, stream);
  return Launch<DenseKind::kConv>(params, clusters, stream);
}

}  // namespace deltafill::kernels::cuda
