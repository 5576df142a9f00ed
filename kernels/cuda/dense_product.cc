#include "kernels/cuda/dense_product.h"

#include <algorithm>

#include "kernels/cuda/runtime.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int64_t kCluster = 2, kDepthBlock = 64;

Status MakeMatrixMap(const DenseProduct& product, TensorMap* out) {
  const int64_t depth = product.in_features;
  if (product.kind != DenseKind::kSwiGlu) {
    return MakeRowsMap({product.w, product.matrix_rows, depth, depth, kDenseMatrixTile}, out);
  }
  const int64_t features = product.matrix_rows / 2;
  const int64_t dims[] = {depth, 8, 2, features / 8};
  const int64_t strides[] = {depth, features * depth, 8 * depth};
  const uint32_t boxes[] = {8, 2, 8};
  return MakeTensorMap({product.w, dims, strides, boxes}, out);
}

Status MakeConv(const DenseProduct& product, DenseConv* out) {
  const MutableRows& y = product.convolved;
  if (Status s = MakeRowsMap({y.data, product.rows, product.channels, y.row_stride, kDenseConvStep},
                             &out->y);
      !s.ok()) {
    return s;
  }
  out->weight = product.conv_weight;
  out->matrix_tiles = static_cast<int>(product.channels / kDenseMatrixTile);
  out->before = static_cast<__nv_bfloat16*>(product.y.data);
  out->before_stride = product.y.row_stride;
  out->rows = static_cast<int>(product.rows);
  out->kept_count = static_cast<int>(product.kept.size());
  std::copy(product.kept.begin(), product.kept.end(), out->kept);
  return {};
}

}  // namespace

Status RunDenseProduct(const DenseProduct& product, const DeviceTraits& device,
                       cudaStream_t stream) {
  DenseHopperParams params;
  const bool swiglu = product.kind == DenseKind::kSwiGlu, conv = product.kind == DenseKind::kConv;
  if (Status s = MakeMatrixMap(product, &params.matrix); !s.ok()) return s;
  const ConstRows& x = product.x;
  if (Status s = MakeRowsMap(
          {x.data, product.rows, product.in_features, x.row_stride, kDenseTokenTile / 2},
          &params.x);
      !s.ok()) {
    return s;
  }
  const int64_t width = swiglu ? product.matrix_rows / 2 : product.matrix_rows;
  const uint32_t tokens = conv ? kDenseConvStep : kDenseTokenTile;
  const MutableRows& y = product.y;
  if (Status s = MakeRowsMap({y.data, product.rows, width, y.row_stride, tokens}, &params.y);
      !s.ok()) {
    return s;
  }
  if (conv) {
    if (Status s = MakeConv(product, &params.conv); !s.ok()) return s;
  }
  const int64_t group = kDenseMatrixTile * kCluster;
  params.matrix_rows = static_cast<int>(product.matrix_rows);
  params.depth_blocks = static_cast<int>((product.in_features + kDepthBlock - 1) / kDepthBlock);
  params.feature_groups = static_cast<int>((product.matrix_rows + group - 1) / group);
  params.token_tiles = static_cast<int>((product.rows + tokens - 1) / tokens);
  const int64_t tiles = int64_t{params.feature_groups} * params.token_tiles;
  const int64_t clusters = std::min<int64_t>(device.multiprocessors / kCluster, tiles);
  return FromCuda(LaunchDenseHopperKernel(params, product.kind, static_cast<int>(clusters), stream),
                  "dense product");
}

}  // namespace deltafill::kernels::cuda
