#include "kernels/cpu/prefill_operators.h"

namespace deltafill::kernels::cpu {

void Embedding(const EmbeddingParams& params, const CpuWeight& table, ThreadTeam& team) {
  const int64_t rows = static_cast<int64_t>(params.tokens.size());
  ForRowPieces(rows, table.in_features(), team, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      table.CopyRow(params.tokens[static_cast<size_t>(row)], RowOf(params.y, row));
    }
  });
}

}  // namespace deltafill::kernels::cpu
