#include "kernels/cuda/product.h"

#include <string>

namespace deltafill::kernels::cuda {
namespace {

constexpr uint32_t kAlignmentBytes = 16;
constexpr int kAlgorithmsAsked = 32;

// The library stores columns, so it is asked for y^T [out, rows] = w^T x^T.
struct ProductForm {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t w, x, y;
};

Status MakeForm(const ProductOperands& o, ProductForm* form) {
  const cublasOperation_t transposed = CUBLAS_OP_T;
  if (Status s = FromCublas(cublasLtMatmulDescInit(&form->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                            "cublasLtMatmulDescInit");
      !s.ok()) {
    return s;
  }
  if (Status s =
          FromCublas(cublasLtMatmulDescSetAttribute(&form->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &transposed, sizeof(transposed)),
                     "cublasLtMatmulDescSetAttribute");
      !s.ok()) {
    return s;
  }
  const cudaDataType y_type = o.y_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
  const struct {
    cublasLtMatrixLayoutOpaque_t* layout;
    cudaDataType type;
    int64_t rows, columns, stride;
  } layouts[] = {{&form->w, CUDA_R_16BF, o.in_features, o.out_features, o.in_features},
                 {&form->x, CUDA_R_16BF, o.in_features, o.rows, o.x_stride},
                 {&form->y, y_type, o.out_features, o.rows, o.y_stride}};
  for (const auto& [layout, type, rows, columns, stride] : layouts) {
    if (Status s = FromCublas(cublasLtMatrixLayoutInit(layout, type, static_cast<uint64_t>(rows),
                                                       static_cast<uint64_t>(columns), stride),
                              "cublasLtMatrixLayoutInit");
        !s.ok()) {
      return s;
    }
  }
  return {};
}

template <typename T>
bool ReadConfig(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t name,
                T* value) {
  size_t written = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, value, sizeof(T), &written) ==
         CUBLAS_STATUS_SUCCESS;
}

// False if the library does not say all of it: such an algorithm is not used.
bool Describe(const cublasLtMatmulAlgo_t& algorithm, ProductAlgorithm* out) {
  return ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_ID, &out->id) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &out->tile) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &out->split_k) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &out->reduction) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &out->swizzling) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &out->custom_option) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, &out->stages) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &out->inner_shape) &&
         ReadConfig(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &out->cluster_shape);
}

Status MakePreference(size_t workspace, cublasLtMatmulPreferenceOpaque_t* preference) {
  const uint32_t reductions = 0;
  const uint32_t alignment = kAlignmentBytes;
  const struct {
    cublasLtMatmulPreferenceAttributes_t name;
    const void* value;
    size_t bytes;
  } settings[] = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof(alignment)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof(alignment)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof(alignment)},
  };
  cublasStatus_t status = cublasLtMatmulPreferenceInit(preference);
  for (const auto& [name, value, bytes] : settings) {
    if (status != CUBLAS_STATUS_SUCCESS) break;
    status = cublasLtMatmulPreferenceSetAttribute(preference, name, value, bytes);
  }
  return FromCublas(status, "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace

Status FromCublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const StatusCode code =
      status == CUBLAS_STATUS_ALLOC_FAILED ? StatusCode::kResourceExhausted : StatusCode::kInternal;
  return {code, std::string(call) + ": " + cublasLtGetStatusName(status) + ": " +
                    cublasLtGetStatusString(status)};
}

ProductLibrary::~ProductLibrary() {
  if (handle_) (void)cublasLtDestroy(handle_);
}

Status ProductLibrary::Open() {
  if (Status s = FromCublas(cublasLtCreate(&handle_), "cublasLtCreate"); !s.ok()) {
    handle_ = nullptr;
    return s;
  }
  version_ = cublasLtGetVersion();
  return {};
}

Status ListAlgorithms(const ProductLibrary& library, const ProductOperands& operands,
                      std::vector<PinnedAlgorithm>* out) {
  ProductForm form;
  if (Status s = MakeForm(operands, &form); !s.ok()) return s;
  out->clear();
  // Without workspace there is no room for sums in parts, said or unsaid.
  for (const size_t workspace : {size_t{0}, kProductWorkspaceBytes}) {
    cublasLtMatmulPreferenceOpaque_t preference;
    if (Status s = MakePreference(workspace, &preference); !s.ok()) return s;
    cublasLtMatmulHeuristicResult_t results[kAlgorithmsAsked];
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library.handle(), &form.product, &form.w, &form.x, &form.y,
                                       &form.y, &preference, kAlgorithmsAsked, results, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) continue;
    if (Status s = FromCublas(status, "cublasLtMatmulAlgoGetHeuristic"); !s.ok()) return s;
    for (int i = 0; i < found; ++i) {
      PinnedAlgorithm pinned;
      pinned.form = results[i].algo;
      if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
      if (!Describe(pinned.form, &pinned.description)) continue;
      if (IsAllowed(pinned.description)) out->push_back(pinned);
    }
  }
  return {};
}

Status RunProduct(const ProductLibrary& library, const ProductOperands& operands,
                  const PinnedAlgorithm& algorithm, const ProductWorkspace& workspace,
                  cudaStream_t stream) {
  ProductForm form;
  if (Status s = MakeForm(operands, &form); !s.ok()) return s;
  const float alpha = 1.0f, beta = operands.accumulate ? 1.0f : 0.0f;
  const cublasStatus_t status =
      cublasLtMatmul(library.handle(), &form.product, &alpha, operands.w, &form.w, operands.x,
                     &form.x, &beta, operands.y, &form.y, operands.y, &form.y, &algorithm.form,
                     workspace.memory, workspace.bytes, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return FromCublas(
      status, ("cublasLtMatmul of " + std::to_string(operands.rows) + " rows, [" +
               std::to_string(operands.out_features) + ", " + std::to_string(operands.in_features) +
               "], " + algorithm.description.ToString())
                  .c_str());
}

}  // namespace deltafill::kernels::cuda
