// Products of a lane that what follows uses at once, where the card has kernels for it.
#include <algorithm>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/dense_product.h"
#include "kernels/cuda/gated_norm_product.h"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/row_operators.h"
#include "kernels/cuda/step_product.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {

Status CudaOperators::MatMulSwiGlu(const MatMulSwiGluParams& params) {
  const MatMulParams& gate_up = params.gate_up;
  const CudaWeight* weight = nullptr;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = AsCudaWeight("gate_up.weight", gate_up.weight, &weight); !s.ok()) return s;
  if (Status s = CheckMatMulSwiGlu(params, weight->out_features(), weight->in_features());
      !s.ok()) {
    return s;
  }
  if (!IsHopper(device_->traits)) return Operators::MatMulSwiGlu(params);
  if (gate_up.step) return StepSwiGlu(params);
  if (gate_up.rows == 0) return {};
  ConstRows x;
  if (Status s = AlignedInput(gate_up, weight->in_features(), &x); !s.ok()) return s;
  DenseProduct product;
  product.kind = DenseKind::kSwiGlu;
  product.w = weight->rows();
  product.matrix_rows = weight->out_features();
  product.in_features = weight->in_features();
  product.x = x;
  product.y = params.y;
  product.rows = gate_up.rows;
  return RunDenseProduct(product, device_->traits, stream_.get());
}

Status CudaOperators::MatMulGatedNorm(const MatMulGatedNormParams& params) {
  const MatMulParams& gate = params.gate;
  const CudaWeight* weight = nullptr;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = AsCudaWeight("gate.weight", gate.weight, &weight); !s.ok()) return s;
  if (Status s = CheckMatMulGatedNorm(params, weight->out_features(), weight->in_features());
      !s.ok()) {
    return s;
  }
  if (gate.step || !ServesGatedNorm(device_->traits, params.norm.width, weight->out_features(),
                                    weight->in_features())) {
    return Operators::MatMulGatedNorm(params);
  }
  if (gate.rows == 0) return {};
  GatedNormProduct product;
  if (Status s = AlignedInput(gate, weight->in_features(), &product.z); !s.ok()) return s;
  product.w = weight->rows();
  product.features = weight->out_features();
  product.y = params.norm.y;
  product.rows = gate.rows;
  product.o = params.norm.x;
  product.norm_weight = params.norm.weight;
  product.bias = gate.bias;
  product.eps = params.norm.eps;
  return RunGatedNormProduct(product, device_->traits, stream_.get());
}

Status CudaOperators::FusesConv(const MatMulShortConvParams& params, bool* fuses) const {
  const MatMulParams& product = params.product;
  const ShortConvParams& conv = params.conv;
  const CudaWeight* weight = nullptr;
  *fuses = false;
  if (Status s = AsCudaWeight("product.weight", product.weight, &weight); !s.ok()) return s;
  if (Status s = CheckMatMulShortConv(params, weight->out_features(), weight->in_features());
      !s.ok()) {
    return s;
  }
  *fuses = IsHopper(device_->traits) && !product.step && product.rows > 0 &&
           product.bias == nullptr && !product.accumulate &&
           conv.channels % kDenseMatrixTile == 0 &&
           conv.offsets.size() + params.kept_ends.size() <= kDenseKeptMax &&
           IsVectorized(product.x.data, product.x.row_stride) &&
           IsVectorized(product.y.data, product.y.row_stride);
  return {};
}

Status CudaOperators::StartMatMulShortConv(const MatMulShortConvParams& params) {
  bool fuses = false;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = FusesConv(params, &fuses); !s.ok()) return s;
  if (!fuses) return MatMul(params.product);
  const auto& weight = static_cast<const CudaWeight&>(*params.product.weight);
  DenseProduct product;
  product.kind = DenseKind::kConv;
  product.w = weight.rows();
  product.matrix_rows = weight.out_features();
  product.in_features = weight.in_features();
  product.x = params.product.x;
  product.y = params.product.y;
  product.rows = params.product.rows;
  product.channels = params.conv.channels;
  product.conv_weight = params.conv.weight;
  product.convolved = params.conv.y;
  const SequenceOffsets offsets = params.conv.offsets;
  product.kept.assign(offsets.begin(), offsets.end() - 1);
  for (const int64_t end : params.kept_ends) {
    product.kept.push_back(std::max<int64_t>(0, end - kConvTailRows));
  }
  return RunDenseProduct(product, device_->traits, stream_.get());
}

Status CudaOperators::FinishMatMulShortConv(const MatMulShortConvParams& params) {
  bool fuses = false;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = FusesConv(params, &fuses); !s.ok()) return s;
  if (!fuses) return ShortConv(params.conv);
  return cuda::ShortConvHeads(params.conv, &conv_descriptions_, stream_.get());
}

}  // namespace deltafill::kernels::cuda
