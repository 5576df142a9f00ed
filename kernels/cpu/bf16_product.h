// One oneDNN product of a bf16 panel with a bf16 column tile, summed in fp32.
#ifndef DELTAFILL_KERNELS_CPU_BF16_PRODUCT_H_
#define DELTAFILL_KERNELS_CPU_BF16_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/status.h"

namespace deltafill::kernels::cpu {

// Immutable and shareable between threads once created.
class Bf16Product {
 public:
  // c[64, width] = a[64, in_features] b[in_features, width]; a and c are row-major and dense.
  static Status Create(int64_t in_features, int64_t width, std::unique_ptr<Bf16Product>* out);
  ~Bf16Product();

  // b is stored as oneDNN likes it: element (k, n) lies at row_offsets()[k] + column_offsets()[n]
  // of tile_elements(); the elements in between must be zero.
  int64_t tile_elements() const { return tile_elements_; }
  const std::vector<int64_t>& row_offsets() const { return row_offsets_; }
  const std::vector<int64_t>& column_offsets() const { return column_offsets_; }

  size_t scratch_bytes() const;  // what Run needs, 64-byte aligned

  Status Run(const uint16_t* a, const uint16_t* b, float* c, void* scratch) const;

 private:
  struct Primitive;
  Bf16Product();

  std::unique_ptr<Primitive> primitive_;
  int64_t tile_elements_ = 0;
  std::vector<int64_t> row_offsets_;
  std::vector<int64_t> column_offsets_;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_BF16_PRODUCT_H_
