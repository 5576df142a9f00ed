// Matrix products in panels of exactly 64 rows.
#include <algorithm>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/prefill_operators.h"
#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {

Status MatMul(const MatMulParams& params, const CpuWeight& weight, ThreadTeam& team,
              LaneScratch& scratch) {
  if (Status status = scratch.ReservePerThread(PanelScratch::Bytes(weight), "matrix product");
      !status.ok()) {
    return status;
  }
  FirstFailure failure(team.threads());

  // Tile by tile, so that a tile stays in the caches while all panels use it.
  const int64_t panels = (params.rows + kBlockTokens - 1) / kBlockTokens;
  team.ParallelFor(panels * weight.tiles(), [&](int64_t index, int thread) {
    const int64_t tile = index / panels;
    const int64_t first_row = index % panels * kBlockTokens;
    const int64_t rows = std::min(kBlockTokens, params.rows - first_row);
    const PanelScratch parts(weight, scratch.OfThread(thread));
    if (!failure.Keep(thread, MultiplyPanel(weight, tile, RowOf(params.x, first_row),
                                            params.x.row_stride, rows, parts))) {
      return;
    }
    const int64_t first_column = tile * kTileColumns;
    StorePanel(parts.product, ProductStride(weight, tile), rows, weight.tile_columns(tile),
               params.bias != nullptr ? params.bias + first_column : nullptr, params.accumulate,
               RowOf(params.y, first_row) + first_column, params.y.row_stride);
  });
  return failure.Take();
}

}  // namespace deltafill::kernels::cpu
