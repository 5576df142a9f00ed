// Matrix products in panels of exactly 64 rows: the shape, the leading dimensions and the number of
// threads of every library call depend on the weight alone, so a row's bits do too.
#include <oneapi/dnnl/dnnl.h>

#include <atomic>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/prefill_operators.h"
#include "kernels/cpu/validate.h"

// Of the OpenMP runtime that oneDNN uses; declared here because the header ships with the compiler
// that brings the runtime, which need not be ours.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
}

namespace deltafill::kernels::cpu {
namespace {

constexpr size_t RoundUpTo64(size_t bytes) { return (bytes + 63) / 64 * 64; }

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

// How a thread's scratch is cut up.
struct PanelScratch {
  PanelScratch(const CpuWeight& weight, void* memory)
      : PanelScratch(weight, static_cast<char*>(memory)) {}
  static size_t Bytes(const CpuWeight& weight) {
    return PanelBytes(weight) + kProductBytes + weight.scratch_bytes();
  }

  void* panel;     // [64, in] in compute dtype
  float* product;  // [64, ProductStride]
  void* library;

 private:
  PanelScratch(const CpuWeight& weight, char* memory)
      : panel(memory),
        product(reinterpret_cast<float*>(memory + PanelBytes(weight))),
        library(memory + PanelBytes(weight) + kProductBytes) {}
  static size_t PanelBytes(const CpuWeight& weight) {
    return RoundUpTo64(static_cast<size_t>(kBlockTokens * weight.in_features()) *
                       SizeOf(weight.compute_dtype()));
  }
  static constexpr size_t kProductBytes = kBlockTokens * PaddedStride(kTileColumns) * sizeof(float);
};

// bf16 products are dense.
int64_t ProductStride(const CpuWeight& weight, int64_t tile) {
  return weight.compute_dtype() == DType::kBF16 ? weight.tile_columns(tile)
                                                : weight.tile_stride(tile);
}

// product = the 64-row panel that begins at first_row, times one column tile.
Status Multiply(const MatMulParams& params, const CpuWeight& weight, int64_t first_row,
                int64_t rows, int64_t tile, const PanelScratch& scratch) {
  const int64_t width = weight.in_features();
  const int64_t columns = weight.tile_columns(tile);
  const float* x = RowOf(params.x, first_row);
  if (weight.compute_dtype() == DType::kBF16) {
    auto* const panel = static_cast<uint16_t*>(scratch.panel);
    PackPanelBf16(x, params.x.row_stride, rows, width, panel);
    return weight.bf16_product(tile).Run(panel, static_cast<const uint16_t*>(weight.tile(tile)),
                                         scratch.product, scratch.library);
  }
  const float* panel = x;
  if (rows < kBlockTokens || params.x.row_stride != width) {
    float* const packed = static_cast<float*>(scratch.panel);
    PackPanel(x, params.x.row_stride, rows, width, packed);
    panel = packed;
  }
  const int64_t stride = weight.tile_stride(tile);
  const dnnl_status_t status = dnnl_sgemm('N', 'N', kBlockTokens, columns, width, 1.0f, panel,
                                          width, static_cast<const float*>(weight.tile(tile)),
                                          stride, 0.0f, scratch.product, stride);
  if (status == dnnl_success) return {};
  return {StatusCode::kInternal, "oneDNN sgemm returned status " + std::to_string(status)};
}

}  // namespace

Status MatMul(const MatMulParams& params, const CpuWeight& weight, ThreadTeam& team,
              LaneScratch& scratch) {
  const size_t bytes = PanelScratch::Bytes(weight);
  for (AlignedBuffer& buffer : scratch.per_thread) {
    if (!buffer.Reserve(bytes)) return OutOfMemory("matrix product", bytes);
  }
  std::vector<Status> failures(scratch.per_thread.size());

  // Tile by tile, so that a tile stays in the caches while all panels use it.
  const int64_t panels = (params.rows + kBlockTokens - 1) / kBlockTokens;
  team.ParallelFor(panels * weight.tiles(), [&](int64_t index, int thread) {
    const SingleOpenMpThread single;
    const int64_t tile = index / panels;
    const int64_t first_row = index % panels * kBlockTokens;
    const int64_t rows = std::min(kBlockTokens, params.rows - first_row);
    const size_t slot = static_cast<size_t>(thread);
    const PanelScratch parts(weight, scratch.per_thread[slot].as<void>());
    Status status = Multiply(params, weight, first_row, rows, tile, parts);
    if (!status.ok()) {
      failures[slot] = std::move(status);
      return;
    }
    const int64_t first_column = tile * kTileColumns;
    StorePanel(parts.product, ProductStride(weight, tile), rows, weight.tile_columns(tile),
               params.bias != nullptr ? params.bias + first_column : nullptr, params.accumulate,
               RowOf(params.y, first_row) + first_column, params.y.row_stride);
  });
  for (Status& failure : failures) {
    if (!failure.ok()) return std::move(failure);
  }
  return {};
}

}  // namespace deltafill::kernels::cpu
