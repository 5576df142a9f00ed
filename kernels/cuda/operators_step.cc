// Products of decoding steps of a lane.
#include <algorithm>
#include <array>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/step_product.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {
namespace {

// Of a checked call.
Status MakeStepProduct(const MatMulParams& params, StepProduct* out) {
  const CudaWeight* weight = nullptr;
  if (Status s = AsCudaWeight("weight", params.weight, &weight); !s.ok()) return s;
  if (Status s = CheckMatMul(params, weight->out_features(), weight->in_features()); !s.ok()) {
    return s;
  }
  out->w = static_cast<const __nv_bfloat16*>(weight->rows());
  out->w_boxes = weight->step_boxes();
  out->out_features = weight->out_features();
  out->in_features = weight->in_features();
  out->x = MakeDeviceRows(params.x);
  out->bias = params.bias;
  out->y = params.y.data;
  out->y_stride = params.y.row_stride;
  out->y_is_f32 = params.y.dtype == DType::kF32;
  out->accumulate = params.accumulate;
  return {};
}

// A step whose rows are sequences of one row each, at most what one launch takes.
bool IsConvolvedStep(const MatMulShortConvParams& params) {
  const MatMulParams& product = params.product;
  const ShortConvParams& conv = params.conv;
  if (!product.step || product.rows < 1 || product.rows > kStepRowsMax || product.bias != nullptr ||
      product.accumulate || product.y.dtype != DType::kBF16 ||
      static_cast<int64_t>(conv.offsets.size()) != product.rows + 1) {
    return false;
  }
  const auto is_aligned = [](const float* tail) {
    return reinterpret_cast<uintptr_t>(tail) % 16 == 0;
  };
  for (int64_t i = 0; i < product.rows; ++i) {
    if (conv.offsets[static_cast<size_t>(i)] != i) return false;
    if (conv.tails_in != nullptr && !is_aligned(conv.tails_in[i])) return false;
    if (conv.tails_out != nullptr && !is_aligned(conv.tails_out[i])) return false;
  }
  return conv.offsets.back() == product.rows;
}

}  // namespace

Status CudaOperators::MultiplySteps(std::span<const MatMulParams> products) {
  std::array<StepProduct, kStepProductsMax> steps;
  for (size_t i = 0; i < products.size(); ++i) {
    if (Status s = MakeStepProduct(products[i], &steps[i]); !s.ok()) return s;
  }
  return RunStepProducts(std::span(steps).first(products.size()), products.front().rows,
                         device_->traits, stream_.get());
}

Status CudaOperators::MatMulShortConv(const MatMulShortConvParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (!IsHopper(device_->traits) || !IsConvolvedStep(params)) {
    return Operators::MatMulShortConv(params);
  }
  const ShortConvParams& conv = params.conv;
  StepProduct step;
  if (Status s = MakeStepProduct(params.product, &step); !s.ok()) return s;
  if (Status s = CheckMatMulShortConv(params, step.out_features, step.in_features); !s.ok()) {
    return s;
  }
  StepConvolution convolution;
  convolution.channels = static_cast<int>(conv.channels);
  convolution.weight = conv.weight;
  convolution.y = static_cast<__nv_bfloat16*>(conv.y.data);
  convolution.y_stride = conv.y.row_stride;
  if (conv.tails_in != nullptr) {
    std::copy_n(conv.tails_in, params.product.rows, convolution.tails_in);
  }
  if (conv.tails_out != nullptr) {
    std::copy_n(conv.tails_out, params.product.rows, convolution.tails_out);
  }
  step.convolution = &convolution;
  return RunStepProducts({&step, 1}, params.product.rows, device_->traits, stream_.get());
}

// Of a checked call.
Status CudaOperators::StepSwiGlu(const MatMulSwiGluParams& params) {
  StepProduct step;
  if (Status s = MakeStepProduct(params.gate_up, &step); !s.ok()) return s;
  step.y = params.y.data;
  step.y_stride = params.y.row_stride;
  step.swiglu = true;
  return RunStepProducts({&step, 1}, params.gate_up.rows, device_->traits, stream_.get());
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
