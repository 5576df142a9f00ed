#include "kernels/cuda/grouped_hopper.h"

#include <algorithm>

#include "kernels/cuda/runtime.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kMatrixTile = 128;  // rows of a matrix a CTA has
constexpr int kDepthBlock = 64;

Status MakeInputMap(const GroupedProduct& product, uint32_t box_rows, TensorMap* out) {
  const int64_t width = product.in_features;
  return MakeRowsMap({product.x, product.x_rows, width, width, box_rows}, out);
}

}  // namespace

Status MakeExpertMap(const void* matrix, int64_t out_features, int64_t in_features, bool swiglu,
                     TensorMap* out) {
  if (swiglu) {  // boxes of 8 gates and the 8 ups that they go with
    const int64_t dims[] = {in_features, out_features, 2};
    const int64_t strides[] = {in_features, out_features * in_features};
    const uint32_t boxes[] = {8, 2};
    return MakeTensorMap({matrix, dims, strides, boxes}, out);
  }
  return MakeRowsMap({matrix, out_features, in_features, in_features, kMatrixTile}, out);
}

Status LaunchGroupedHopper(const GroupedProduct& product, const TensorMap* maps,
                           int multiprocessors, int cluster, cudaStream_t stream) {
  GroupedHopperParams params;
  if (Status s = MakeInputMap(product, kRowsBox, &params.rows); !s.ok()) return s;
  if (Status s = MakeInputMap(product, kFewRowsBox, &params.few_rows); !s.ok()) return s;
  params.matrices = maps;
  params.tiles = product.tiles;
  params.work = product.work;
  params.ticket = product.ticket;
  const int64_t features = product.swiglu ? kMatrixTile / 2 : kMatrixTile;
  const int64_t group = features * cluster;
  params.feature_groups = static_cast<int>((product.out_features + group - 1) / group);
  params.depth_blocks = static_cast<int>((product.in_features + kDepthBlock - 1) / kDepthBlock);
  params.out_features = static_cast<int>(product.out_features);
  params.y = product.y;
  const int64_t clusters =
      std::min<int64_t>(multiprocessors / cluster, product.tiles_max * params.feature_groups);
  const int ctas = static_cast<int>(clusters) * cluster;
  return FromCuda(LaunchGroupedHopperKernel(params, product.swiglu, cluster, ctas, stream),
                  "grouped product");
}

}  // namespace deltafill::kernels::cuda
