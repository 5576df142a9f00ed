// Matrix products of a few rows, for decoding: limited by reading the weights once, where 64-row
// panels would multiply mostly zeros. Every column of a row is summed over k in ascending order, so
// a row's bits do not depend on the other rows.
#include <algorithm>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/prefill_operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTerms = 4;        // weight rows that are read together
constexpr int64_t kRowGroup = 4;     // rows that share what was read
constexpr int64_t kChunkTerms = 32;  // of a tile: small enough to stay in the L2 cache for all rows

// sums[r, columns] += sum_j x[r, j] w[j, columns], j ascending, for kRows rows. Reads and writes
// whole vectors of sums.
template <int64_t kRows, int64_t kTermCount>
HWY_INLINE void AddTerms(const float* x, int64_t x_stride, const float* w, int64_t stride,
                         int64_t columns, float* HWY_RESTRICT sums) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < columns; i += lanes) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(std::min(columns - i, lanes)));
    hn::Vec<decltype(d)> weights[kTermCount];
    for (int64_t j = 0; j < kTermCount; ++j) {
      weights[j] = columns - i >= lanes ? hn::LoadU(d, w + j * stride + i)
                                        : hn::MaskedLoad(mask, d, w + j * stride + i);
    }
    for (int64_t row = 0; row < kRows; ++row) {
      float* const sum_at = sums + row * kTileColumns + i;
      auto sum = hn::Load(d, sum_at);
      for (int64_t j = 0; j < kTermCount; ++j) {
        sum = hn::MulAdd(hn::Set(d, x[row * x_stride + j]), weights[j], sum);
      }
      hn::Store(sum, d, sum_at);
    }
  }
}

template <int64_t kRows>
HWY_INLINE void AddChunk(const float* x, int64_t x_stride, const float* w, int64_t stride,
                         int64_t terms, int64_t columns, float* sums) {
  int64_t k = 0;
  for (; k + kTerms <= terms; k += kTerms) {
    AddTerms<kRows, kTerms>(x + k, x_stride, w + k * stride, stride, columns, sums);
  }
  for (; k < terms; ++k) {
    AddTerms<kRows, 1>(x + k, x_stride, w + k * stride, stride, columns, sums);
  }
}

void MultiplyRows(const CpuWeight& weight, int64_t tile, const float* x, int64_t row_stride,
                  int64_t rows, float* sums) {
  const int64_t width = weight.in_features();
  const int64_t columns = weight.tile_columns(tile);
  const int64_t stride = weight.tile_stride(tile);
  std::fill(sums, sums + rows * kTileColumns, 0.0f);
  for (int64_t k = 0; k < width; k += kChunkTerms) {
    const int64_t terms = std::min(kChunkTerms, width - k);
    const float* const w = static_cast<const float*>(weight.tile(tile)) + k * stride;
    int64_t row = 0;
    for (; row + kRowGroup <= rows; row += kRowGroup) {
      AddChunk<kRowGroup>(x + row * row_stride + k, row_stride, w, stride, terms, columns,
                          sums + row * kTileColumns);
    }
    for (; row < rows; ++row) {
      AddChunk<1>(x + row * row_stride + k, row_stride, w, stride, terms, columns,
                  sums + row * kTileColumns);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace deltafill::kernels::cpu {

HWY_EXPORT(MultiplyRows);

void MultiplyFewRows(const CpuWeight& weight, int64_t tile, const float* x, int64_t row_stride,
                     int64_t rows, float* sums) {
  HWY_DYNAMIC_DISPATCH(MultiplyRows)(weight, tile, x, row_stride, rows, sums);
}

Status MatMulStep(const MatMulParams& params, const CpuWeight& weight, ThreadTeam& team,
                  LaneScratch& scratch) {
  const int64_t panels = (params.rows + kBlockTokens - 1) / kBlockTokens;
  const size_t bytes = sizeof(float) * static_cast<size_t>(kBlockTokens * kTileColumns);
  if (Status s = scratch.ReservePerThread(bytes, "matrix product"); !s.ok()) return s;
  team.ParallelFor(panels * weight.tiles(), [&](int64_t index, int thread) {
    const int64_t tile = index / panels;
    const int64_t first_row = index % panels * kBlockTokens;
    const int64_t rows = std::min(kBlockTokens, params.rows - first_row);
    float* const sums = static_cast<float*>(scratch.OfThread(thread));
    MultiplyFewRows(weight, tile, RowOf(params.x, first_row), params.x.row_stride, rows, sums);
    const int64_t first_column = tile * kTileColumns;
    StorePanel(sums, kTileColumns, rows, weight.tile_columns(tile),
               params.bias != nullptr ? params.bias + first_column : nullptr, params.accumulate,
               RowOf(params.y, first_row) + first_column, params.y.row_stride);
  });
  return {};
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
