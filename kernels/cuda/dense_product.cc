#include "kernels/cuda/dense_product.h"

#include <algorithm>

#include "kernels/cuda/dense_hopper.h"
#include "kernels/cuda/runtime.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int64_t kCluster = 2, kDepthBlock = 64;

Status MakeMatrixMap(const DenseProduct& product, TensorMap* out) {
  const int64_t depth = product.in_features;
  const int64_t features = product.matrix_rows / 2;
  const int64_t dims[] = {depth, 8, 2, features / 8};
  const int64_t strides[] = {depth, features * depth, 8 * depth};
  const uint32_t boxes[] = {8, 2, 8};
  return MakeTensorMap({product.w, dims, strides, boxes}, out);
}

Status MakeRowsMap(const ConstRows& rows, int64_t count, int64_t width, uint32_t box,
                   TensorMap* out) {
  const int64_t dims[] = {width, count};
  const int64_t strides[] = {rows.row_stride};
  const uint32_t boxes[] = {box};
  return MakeTensorMap({rows.data, dims, strides, boxes}, out);
}

}  // namespace

bool ServesDense(const DeviceTraits& device) { return device.major == 9; }

Status RunDenseProduct(const DenseProduct& product, const DeviceTraits& device,
                       cudaStream_t stream) {
  DenseHopperParams params;
  if (Status s = MakeMatrixMap(product, &params.matrix); !s.ok()) return s;
  if (Status s =
          MakeRowsMap(product.x, product.rows, product.in_features, kDenseTokenTile / 2, &params.x);
      !s.ok()) {
    return s;
  }
  if (Status s =
          MakeRowsMap(product.y, product.rows, product.matrix_rows / 2, kDenseTokenTile, &params.y);
      !s.ok()) {
    return s;
  }
  const int64_t group = kDenseMatrixTile * kCluster;
  params.matrix_rows = static_cast<int>(product.matrix_rows);
  params.depth_blocks = static_cast<int>((product.in_features + kDepthBlock - 1) / kDepthBlock);
  params.feature_groups = static_cast<int>((product.matrix_rows + group - 1) / group);
  params.token_tiles = static_cast<int>((product.rows + kDenseTokenTile - 1) / kDenseTokenTile);
  const int64_t tiles = int64_t{params.feature_groups} * params.token_tiles;
  const int64_t clusters = std::min<int64_t>(device.multiprocessors / kCluster, tiles);
  return FromCuda(LaunchDenseHopperKernel(params, static_cast<int>(clusters), stream),
                  "dense product");
}

}  // namespace deltafill::kernels::cuda
