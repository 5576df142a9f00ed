#include "kernels/cuda/step_product.h"

#include <algorithm>

#include "kernels/cuda/step_kernels.h"

namespace deltafill::kernels::cuda {
namespace {

// Rows [first, ...) of the product.
StepProduct RowsFrom(StepProduct product, int first) {
  const int64_t element = product.y_is_f32 ? sizeof(float) : sizeof(__nv_bfloat16);
  product.x.rows += first * product.x.stride;
  product.y = static_cast<uint8_t*>(product.y) + first * product.y_stride * element;
  return product;
}

}  // namespace

cudaError_t RunStepProducts(std::span<const StepProduct> products, int rows,
                            const DeviceTraits& traits, cudaStream_t stream) {
  const bool has_clusters = traits.major == 9;  // later cards run the code for 8.0
  const int rows_max = has_clusters ? kStepRowsMax : kStepFewRows;
  for (int first = 0; first < rows; first += rows_max) {
    StepKernelParams params;
    params.rows = std::min(rows - first, rows_max);
    const bool few = params.rows <= kStepFewRows;
    for (const StepProduct& product : products) {
      const StepProductPlan plan =
          PlanStepProduct(product.out_features, product.in_features, traits);
      params.products[params.count++] = {RowsFrom(product, first), 0, plan.chunks, plan.parts_log2};
      if (!few) params.cluster = std::max(params.cluster, 1 << plan.parts_log2);
    }
    for (int i = 0; i < params.count; ++i) {
      PlannedProduct& planned = params.products[i];
      const int64_t features = planned.product.out_features;
      const int parts = 1 << planned.parts_log2;
      const int64_t ctas = few ? (features * parts + 127) / 128 : (features + 127) / 128 * parts;
      planned.first_cta = params.ctas;
      params.ctas +=
          static_cast<int>((ctas + params.cluster - 1) / params.cluster * params.cluster);
    }
    const cudaError_t error = few ? LaunchFewRows(params, stream) : LaunchManyRows(params, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace deltafill::kernels::cuda
