#include "kernels/cuda/step_product.h"

#include <algorithm>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_product_hopper.h"
#include "kernels/cuda/step_product_plan.h"
#include "kernels/cuda/step_product_portable.h"

namespace deltafill::kernels::cuda {
namespace {

// Rows [first, ...) of the product.
StepProduct RowsFrom(StepProduct product, int64_t first) {
  const int64_t element = product.y_is_f32 ? sizeof(float) : sizeof(__nv_bfloat16);
  product.x.rows += first * product.x.stride;
  product.y = static_cast<uint8_t*>(product.y) + first * product.y_stride * element;
  return product;
}

Status MapRows(const StepProduct& product, int rows, int cta_rows, TensorMap* out) {
  if (!product.x.vectorized) return {};
  return MakeRowsMap({product.x.rows, rows, product.in_features, product.x.stride,
                      static_cast<uint32_t>(cta_rows)},
                     out);
}

Status RunHopper(std::span<const StepProduct> products, int64_t first_row, int rows,
                 cudaStream_t stream) {
  StepHopperParams params;
  params.rows = rows;
  StepHopperPlan plans[kStepProductsMax];
  for (size_t i = 0; i < products.size(); ++i) {
    plans[i] =
        PlanStepHopper(products[i].out_features, products[i].in_features, products[i].swiglu);
    params.cluster = std::max(params.cluster, 1 << plans[i].parts_log2);
  }
  params.cta_rows = StepCtaRows(rows, {plans, products.size()});
  for (const StepProduct& product : products) {
    const StepHopperPlan& plan = plans[params.count];
    StepHopperProduct& planned = params.products[params.count++];
    planned.product = RowsFrom(product, first_row);
    planned.blocks = plan.blocks;
    planned.parts_log2 = plan.parts_log2;
    planned.first_cta = params.ctas;
    const int ctas = plan.tiles << plan.parts_log2;
    params.ctas += (ctas + params.cluster - 1) / params.cluster * params.cluster;
    planned.weight = *product.w_boxes;
    if (product.convolution != nullptr) params.convolution = *product.convolution;
    if (Status s = MapRows(planned.product, rows, params.cta_rows, &planned.x); !s.ok()) return s;
  }
  return FromCuda(LaunchStepHopper(params, stream), "step product");
}

// Cards without clusters or the engine that copies boxes.
Status RunPortable(std::span<const StepProduct> products, int64_t first_row, int rows,
                   const DeviceTraits& traits, cudaStream_t stream) {
  StepKernelParams params;
  params.rows = rows;
  for (const StepProduct& product : products) {
    const StepProductPlan plan = PlanStepProduct(product.out_features, product.in_features, traits);
    const int64_t ctas = ((product.out_features << plan.parts_log2) + 127) / 128;
    params.products[params.count++] = {RowsFrom(product, first_row), params.ctas, plan.chunks,
                                       plan.parts_log2};
    params.ctas += static_cast<int>(ctas);
  }
  return FromCuda(LaunchPortableStep(params, stream), "step product");
}

}  // namespace

Status MakeStepBoxes(const void* w, int64_t out_features, int64_t in_features, TensorMap* out) {
  return MakeRowsMap({w, out_features, in_features, in_features, kStepBoxFeatures}, out);
}

Status RunStepProducts(std::span<const StepProduct> products, int64_t rows,
                       const DeviceTraits& traits, cudaStream_t stream) {
  const bool hopper = IsHopper(traits);
  const int64_t most = hopper ? kStepRowsMax : kPortableStepRows;
  for (int64_t first = 0; first < rows; first += most) {
    const int count = static_cast<int>(std::min(rows - first, most));
    Status status = hopper ? RunHopper(products, first, count, stream)
                           : RunPortable(products, first, count, traits, stream);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
