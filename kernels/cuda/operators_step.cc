// Products of decoding steps of a lane.
#include <algorithm>
#include <array>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/step_product.h"
#include "kernels/cuda/step_product_plan.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {
namespace {

// Rows [first, ...) of a checked call.
Status MakeStepProduct(const MatMulParams& params, int64_t first, StepProduct* out) {
  const CudaWeight* weight = nullptr;
  if (Status s = AsCudaWeight("weight", params.weight, &weight); !s.ok()) return s;
  if (Status s = CheckMatMul(params, weight->out_features(), weight->in_features()); !s.ok()) {
    return s;
  }
  out->w = static_cast<const __nv_bfloat16*>(weight->rows());
  out->out_features = weight->out_features();
  out->in_features = weight->in_features();
  out->x = MakeDeviceRows(params.x);
  out->x.rows += first * params.x.row_stride;
  out->bias = params.bias;
  out->y = static_cast<uint8_t*>(params.y.data) +
           static_cast<size_t>(first * params.y.row_stride) * SizeOf(params.y.dtype);
  out->y_stride = params.y.row_stride;
  out->y_is_f32 = params.y.dtype == DType::kF32;
  out->accumulate = params.accumulate;
  return {};
}

}  // namespace

Status CudaOperators::MultiplySteps(std::span<const MatMulParams> products) {
  const int64_t rows = products.front().rows;
  for (int64_t first = 0; first == 0 || first < rows; first += kStepRowsMax) {
    std::array<StepProduct, kStepProductsMax> steps;
    for (size_t i = 0; i < products.size(); ++i) {
      if (Status s = MakeStepProduct(products[i], first, &steps[i]); !s.ok()) return s;
    }
    if (rows == 0) return {};
    const int count = static_cast<int>(std::min<int64_t>(rows - first, kStepRowsMax));
    const cudaError_t launched = RunStepProducts(std::span(steps).first(products.size()), count,
                                                 device_->traits, stream_.get());
    if (Status s = FromCuda(launched, "step product"); !s.ok()) return s;
  }
  return {};
}

Status CudaOperators::MatMuls(std::span<const MatMulParams> products) {
  if (Status s = Enter(); !s.ok()) return s;
  while (!products.empty()) {
    const MatMulParams& leader = products.front();
    size_t count = 1;
    while (leader.step && count < products.size() && count < kStepProductsMax &&
           products[count].step && products[count].rows == leader.rows) {
      ++count;
    }
    const Status status = leader.step ? MultiplySteps(products.first(count)) : MatMul(leader);
    if (!status.ok()) return status;
    products = products.subspan(count);
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
