// Products of a lane: rows to aligned rows, calls to the algorithms that the weight is pinned to.
#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/element_rows.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {
namespace {

bool IsAligned(const ConstRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
         rows.row_stride * static_cast<int64_t>(SizeOf(rows.dtype)) % 16 == 0;
}

int64_t AlignedStride(int64_t width) { return (width + 7) / 8 * 8; }

size_t BytesOf(int64_t rows, int64_t stride, DType dtype) {
  return static_cast<size_t>(rows * stride) * SizeOf(dtype);
}

}  // namespace

Status CudaOperators::CopyRows(const ConstRows& from, const MutableRows& to, int64_t rows,
                               int64_t width) {
  const size_t element = SizeOf(from.dtype);
  return FromCuda(cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.row_stride) * element,
                                    from.data, static_cast<size_t>(from.row_stride) * element,
                                    static_cast<size_t>(width) * element, static_cast<size_t>(rows),
                                    cudaMemcpyDeviceToDevice, stream_.get()),
                  "cudaMemcpy2DAsync");
}

Status CudaOperators::AlignedInput(const MatMulParams& params, int64_t width, ConstRows* x) {
  *x = params.x;
  if (IsAligned(params.x)) return {};
  const MutableRows copy = {nullptr, params.x.dtype, AlignedStride(width)};
  const size_t bytes = BytesOf(params.rows, copy.row_stride, copy.dtype);
  if (Status s = aligned_x_.Reserve(bytes, stream_.get()); !s.ok()) return s;
  *x = {aligned_x_.as<void>(), copy.dtype, copy.row_stride};
  return CopyRows(params.x, {aligned_x_.as<void>(), copy.dtype, copy.row_stride}, params.rows,
                  width);
}

Status CudaOperators::AlignedOutput(const MatMulParams& params, int64_t width, MutableRows* y) {
  *y = params.y;
  if (IsAligned(params.y)) return {};
  const int64_t stride = AlignedStride(width);
  const size_t bytes = BytesOf(params.rows, stride, params.y.dtype);
  if (Status s = aligned_y_.Reserve(bytes, stream_.get()); !s.ok()) return s;
  *y = {aligned_y_.as<void>(), params.y.dtype, stride};
  if (!params.accumulate) return {};
  return CopyRows(params.y, *y, params.rows, width);
}

Status CudaOperators::Multiply(const MatMulParams& params, const CudaWeight& weight,
                               const ConstRows& x, const MutableRows& y, bool accumulate) {
  const PinnedClasses& classes = weight.products().For(y.dtype);
  const ProductWorkspace workspace = {product_workspace_.as<void>(), product_workspace_.bytes()};
  ProductOperands operands;
  operands.w = weight.rows();
  operands.out_features = weight.out_features();
  operands.in_features = weight.in_features();
  operands.x_stride = x.row_stride;
  operands.y_dtype = y.dtype;
  operands.y_stride = y.row_stride;
  operands.accumulate = accumulate;
  for (int64_t row = 0; row < params.rows; row += operands.rows) {
    operands.rows = NextCallRows(params.rows - row);
    operands.x = static_cast<const uint8_t*>(x.data) + BytesOf(row, x.row_stride, x.dtype);
    operands.y = static_cast<uint8_t*>(y.data) + BytesOf(row, y.row_stride, y.dtype);
    const PinnedAlgorithm& algorithm = classes[RowClassOf(operands.rows)];
    if (Status s = RunProduct(device_->library, operands, algorithm, workspace, stream_.get());
        !s.ok()) {
      return s;
    }
  }
  return {};
}

Status CudaOperators::MatMul(const MatMulParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (params.step) return MultiplySteps({&params, 1});
  const CudaWeight* weight = nullptr;
  if (Status s = AsCudaWeight("weight", params.weight, &weight); !s.ok()) return s;
  const int64_t out = weight->out_features();
  if (Status s = CheckMatMul(params, out, weight->in_features()); !s.ok()) return s;
  if (params.rows == 0) return {};
  ConstRows x;
  MutableRows y;
  if (Status s = AlignedInput(params, weight->in_features(), &x); !s.ok()) return s;
  if (Status s = AlignedOutput(params, out, &y); !s.ok()) return s;
  bool accumulate = params.accumulate;
  if (params.bias != nullptr) {
    const cudaError_t started =
        StartWithBias(params.bias, y, params.rows, out, accumulate, stream_.get());
    if (Status s = FromCuda(started, "bias"); !s.ok()) return s;
    accumulate = true;
  }
  if (Status s = Multiply(params, *weight, x, y, accumulate); !s.ok()) return s;
  if (y.data == params.y.data) return {};
  return CopyRows(y, params.y, params.rows, out);
}

}  // namespace deltafill::kernels::cuda
