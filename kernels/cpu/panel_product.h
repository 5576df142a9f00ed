// The library calls that every product is made of: a panel of 64 rows with a column tile of a
// weight, and plain fp32 products of a fixed shape. Both run on the calling thread alone.
#ifndef DELTAFILL_KERNELS_CPU_PANEL_PRODUCT_H_
#define DELTAFILL_KERNELS_CPU_PANEL_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weight.h"
#include "kernels/status.h"
#include "kernels/tensor.h"

namespace deltafill::kernels::cpu {

constexpr size_t RoundUpTo64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// How a thread's scratch is cut up for the products with one weight.
class PanelScratch {
 public:
  static size_t Bytes(const CpuWeight& weight) {
    return PanelBytes(weight) + kProductBytes + weight.scratch_bytes();
  }
  // `memory`: Bytes(weight), 64-byte aligned.
  PanelScratch(const CpuWeight& weight, void* memory)
      : PanelScratch(weight, static_cast<char*>(memory)) {}

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

// Elements between rows of scratch.product. bf16 products are dense.
inline int64_t ProductStride(const CpuWeight& weight, int64_t tile) {
  return weight.compute_dtype() == DType::kBF16 ? weight.tile_columns(tile)
                                                : weight.tile_stride(tile);
}

// scratch.product[64, tile_columns] = `rows` <= 64 rows of x (zeros after them) times the tile.
// Shape, leading dimensions and number of threads depend on the weight alone, so a row's bits do
// too. kInternal if oneDNN fails.
Status MultiplyPanel(const CpuWeight& weight, int64_t tile, const float* x, int64_t row_stride,
                     int64_t rows, const PanelScratch& scratch);

// sums[rows, kTileColumns] = `rows` rows of x times a tile of an fp32 weight, reading the weight
// once. Every column of a row is summed over k in ascending order: a row's bits depend on nothing
// else. `sums` is 64-byte aligned; columns past the tile's hold anything.
void MultiplyFewRows(const CpuWeight& weight, int64_t tile, const float* x, int64_t row_stride,
                     int64_t rows, float* sums);

// c[rows, columns] = a[rows, depth] b, b being [depth, columns], or [columns, depth] if transposed.
// Bits depend on all sizes and strides: callers keep them fixed.
struct Fp32Product {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;
  float* c = nullptr;
  int64_t c_stride = 0;
};
Status Multiply(const Fp32Product& product);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_PANEL_PRODUCT_H_
