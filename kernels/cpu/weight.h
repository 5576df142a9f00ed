// A weight matrix of the CPU backend: W^T cut into column tiles that one library call multiplies.
#ifndef DELTAFILL_KERNELS_CPU_WEIGHT_H_
#define DELTAFILL_KERNELS_CPU_WEIGHT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/bf16_product.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cpu {

// Output columns of a tile; the last tile of a weight may be narrower. Part of what bits depend on.
inline constexpr int64_t kTileColumns = 512;

constexpr int64_t PaddedStride(int64_t columns) {
  return columns % 128 == 0 ? columns + 16 : columns;
}

// Immutable after Create. One form only, [in, columns of a tile], serves products and embedding
// lookups: a lookup gathers one column, in_features cache lines, which is nothing beside a token's
// products, and it keeps a tied or untied vocabulary in memory once. With compute dtype bf16 the
// elements are bf16 (fp32 and fp16 sources are rounded to nearest even), for lookups too.
class CpuWeight final : public Weight {
 public:
  // `host_data`: [out_features, in_features] of `dtype`. compute_dtype: kF32 or kBF16.
  static Status Create(const void* host_data, DType dtype, int64_t out_features,
                       int64_t in_features, DType compute_dtype, std::unique_ptr<Weight>* out);

  int64_t out_features() const override { return out_features_; }
  int64_t in_features() const override { return in_features_; }
  DType compute_dtype() const { return compute_dtype_; }

  int64_t tiles() const { return (out_features_ + kTileColumns - 1) / kTileColumns; }
  int64_t tile_columns(int64_t tile) const {
    return std::min(kTileColumns, out_features_ - tile * kTileColumns);
  }
  // Elements between rows of an fp32 tile: padded where rows a power of two apart would share cache
  // sets (oneDNN's AVX2 product loses up to half its rate to that).
  int64_t tile_stride(int64_t tile) const { return PaddedStride(tile_columns(tile)); }
  // fp32 [in, tile_stride(tile)], or bf16 in bf16_product(tile)'s layout.
  const void* tile(int64_t tile) const;
  const Bf16Product& bf16_product(int64_t tile) const { return *form(tile).product; }
  size_t scratch_bytes() const;  // the most any bf16_product wants

  // row[in_features]: what output `out_index` multiplies.
  void CopyRow(int64_t out_index, float* row) const;

 private:
  // Layout of the full tiles, or of a narrower last one.
  struct TileForm {
    int64_t elements = 0;
    std::vector<int64_t> row_offsets;
    std::vector<int64_t> column_offsets;
    std::unique_ptr<Bf16Product> product;  // bf16 only
  };

  CpuWeight() = default;
  Status MakeForm(int64_t columns, TileForm* form) const;
  const TileForm& form(int64_t tile) const {
    return tile_columns(tile) == kTileColumns ? full_ : last_;
  }
  template <typename Source, typename Element>
  void Fill(const Source* source);

  int64_t out_features_ = 0;
  int64_t in_features_ = 0;
  DType compute_dtype_ = DType::kF32;
  TileForm full_;  // unused if there is no full tile
  TileForm last_;  // unused if the last tile is full
  AlignedBuffer elements_;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_WEIGHT_H_
