#include "kernels/cuda/gated_norm_product.h"

#include <algorithm>

#include "kernels/cuda/gated_norm_hopper.h"
#include "kernels/cuda/runtime.h"

namespace deltafill::kernels::cuda {
namespace {

Status MakeTokensMap(const ConstRows& rows, int64_t count, int64_t width, TensorMap* out) {
  return MakeRowsMap({rows.data, count, width, rows.row_stride, kGatedNormTokens}, out);
}

}  // namespace

bool ServesGatedNorm(const DeviceTraits& device, int64_t norm_width, int64_t out_features,
                     int64_t in_features) {
  return IsHopper(device) && norm_width == kGatedNormWidth && in_features == kGatedNormWidth &&
         out_features % kGatedNormWidth == 0;
}

Status RunGatedNormProduct(const GatedNormProduct& product, const DeviceTraits& device,
                           cudaStream_t stream) {
  GatedNormParams params;
  if (Status s = MakeTokensMap(product.z, product.rows, kGatedNormWidth, &params.z); !s.ok()) {
    return s;
  }
  if (Status s = MakeRowsMap(
          {product.w, product.features, kGatedNormWidth, kGatedNormWidth, kGatedNormWidth},
          &params.matrix);
      !s.ok()) {
    return s;
  }
  if (Status s = MakeTokensMap(product.o, product.rows, product.features, &params.o); !s.ok()) {
    return s;
  }
  if (Status s = MakeTokensMap(product.y, product.rows, product.features, &params.y); !s.ok()) {
    return s;
  }
  params.weight = product.norm_weight;
  params.bias = product.bias;
  params.eps = product.eps;
  params.token_tiles = static_cast<int>((product.rows + kGatedNormTokens - 1) / kGatedNormTokens);
  const int64_t heads = product.features / kGatedNormWidth;
  const int64_t resident = int64_t{device.multiprocessors} * kGatedNormCtas;
  const int64_t groups =
      std::min<int64_t>(std::max<int64_t>(resident / heads, 1), params.token_tiles);
  return FromCuda(
      LaunchGatedNorm(params, static_cast<int>(heads), static_cast<int>(groups), stream),
      "gated norm with its product");
}

}  // namespace deltafill::kernels::cuda
