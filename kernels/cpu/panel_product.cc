#include "kernels/cpu/panel_product.h"

#include <oneapi/dnnl/dnnl.h>

#include <string>

#include "kernels/cpu/panel.h"

// Of the OpenMP runtime that oneDNN uses; declared here because the header ships with the compiler
// that brings the runtime, which need not be ours.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
}

namespace deltafill::kernels::cpu {
namespace {

// OpenMP keeps the number of threads per calling thread: one while this lives.
class SingleOpenMpThread {
 public:
  SingleOpenMpThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~SingleOpenMpThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }

 private:
  const int before_;
};

}  // namespace

Status Multiply(const Fp32Product& product) {
  const SingleOpenMpThread single;
  const dnnl_status_t status = dnnl_sgemm(
      'N', product.b_transposed ? 'T' : 'N', product.rows, product.columns, product.depth, 1.0f,
      product.a, product.a_stride, product.b, product.b_stride, 0.0f, product.c, product.c_stride);
  if (status == dnnl_success) return {};
  return {StatusCode::kInternal, "oneDNN sgemm returned status " + std::to_string(status)};
}

Status MultiplyPanel(const CpuWeight& weight, int64_t tile, const float* x, int64_t row_stride,
                     int64_t rows, const PanelScratch& scratch) {
  const int64_t width = weight.in_features();
  if (weight.compute_dtype() == DType::kBF16) {
    const SingleOpenMpThread single;
    auto* const panel = static_cast<uint16_t*>(scratch.panel);
    PackPanelBf16(x, row_stride, rows, width, panel);
    return weight.bf16_product(tile).Run(panel, static_cast<const uint16_t*>(weight.tile(tile)),
                                         scratch.product, scratch.library);
  }
  const float* panel = x;
  if (rows < kBlockTokens || row_stride != width) {
    float* const packed = static_cast<float*>(scratch.panel);
    PackPanel(x, row_stride, rows, width, packed);
    panel = packed;
  }
  const int64_t stride = weight.tile_stride(tile);
  return Multiply({.rows = kBlockTokens,
                   .columns = weight.tile_columns(tile),
                   .depth = width,
                   .a = panel,
                   .a_stride = width,
                   .b = static_cast<const float*>(weight.tile(tile)),
                   .b_stride = stride,
                   .c = scratch.product,
                   .c_stride = stride});
}

}  // namespace deltafill::kernels::cpu
