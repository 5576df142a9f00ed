// Products of a lane that what follows uses at once, where the card has kernels for it.
#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/dense_product.h"
#include "kernels/cuda/gated_norm_product.h"
#include "kernels/cuda/operators.h"
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
  if (gate_up.step || !ServesDense(device_->traits)) return Operators::MatMulSwiGlu(params);
  if (gate_up.rows == 0) return {};
  ConstRows x;
  if (Status s = AlignedInput(gate_up, weight->in_features(), &x); !s.ok()) return s;
  DenseProduct product;
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

}  // namespace deltafill::kernels::cuda
