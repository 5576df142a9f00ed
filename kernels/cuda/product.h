// Matrix products through cuBLASLt: the library behind Status, one call with a given algorithm.
#ifndef DELTAFILL_KERNELS_CUDA_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_PRODUCT_H_

#include <cublasLt.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/product_plan.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/workspace_limits.h"

namespace deltafill::kernels::cuda {

Status FromCublas(cublasStatus_t status, const char* call);

// Owns a library handle; thread-safe, as the handle is.
class ProductLibrary {
 public:
  ProductLibrary() = default;
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;
  ~ProductLibrary();

  Status Open();
  cublasLtHandle_t handle() const { return handle_; }
  size_t version() const { return version_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
  size_t version_ = 0;
};

// y[rows, out] = x[rows, in] w[out, in]^T, or += . Device pointers; x, y and w and their strides
// are multiples of 16 bytes.
struct ProductOperands {
  const void* w = nullptr;  // bf16 [out_features, in_features], dense
  int64_t out_features = 0;
  int64_t in_features = 0;
  const void* x = nullptr;  // bf16
  int64_t x_stride = 0;
  void* y = nullptr;
  DType y_dtype = DType::kBF16;  // or kF32
  int64_t y_stride = 0;
  int64_t rows = 0;
  bool accumulate = false;
};

// An algorithm as the library keeps it, and its description.
struct PinnedAlgorithm {
  cublasLtMatmulAlgo_t form = {};
  ProductAlgorithm description;
};

// The library's own choices for the operands' shape that are allowed, best first; those that need
// no workspace come before all others. Operands' pointers are not read.
Status ListAlgorithms(const ProductLibrary& library, const ProductOperands& operands,
                      std::vector<PinnedAlgorithm>* out);

struct ProductWorkspace {
  void* memory = nullptr;
  size_t bytes = 0;
};

Status RunProduct(const ProductLibrary& library, const ProductOperands& operands,
                  const PinnedAlgorithm& algorithm, const ProductWorkspace& workspace,
                  cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PRODUCT_H_
