// Rows of the latent cache: rms norm of the latent, copy of the shared key part.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/latent_operators.h"
#include "kernels/cpu/prefill_operators.h"

namespace deltafill::kernels::cpu {
namespace {

// Rows [begin, end) of one sequence, whose first row in x is `first`.
void AppendRows(const LatentAppendParams& params, const LatentSequence& sequence, int64_t first,
                int64_t begin, int64_t end) {
  const int64_t width = params.rank + params.rope_dim;
  for (int64_t row = begin; row < end;) {
    const int64_t token = sequence.first_token + row;
    const int64_t in_page = token % kLatentPageTokens;
    const int64_t rows = std::min(end - row, kLatentPageTokens - in_page);
    float* const to = LatentRow(sequence, token, width);
    const float* const from = RowOf(params.x, first + row);
    const int64_t stride = params.x.row_stride;
    RmsNormOfRows({.x = {from, DType::kF32, stride},
                   .weight = params.norm_weight,
                   .y = {to, DType::kF32, width},
                   .rows = rows,
                   .width = params.rank,
                   .eps = params.eps},
                  0, rows);
    for (int64_t i = 0; i < rows && params.rope_dim > 0; ++i) {
      std::memcpy(to + i * width + params.rank, from + i * stride + params.rank,
                  static_cast<size_t>(params.rope_dim) * sizeof(float));
    }
    row += rows;
  }
}

}  // namespace

void LatentAppend(const LatentAppendParams& params, ThreadTeam& team) {
  const int64_t width = params.rank + params.rope_dim;
  for (size_t s = 0; s < params.sequences.size(); ++s) {
    const int64_t first = params.offsets[s];
    ForRowPieces(params.offsets[s + 1] - first, width, team, [&](int64_t begin, int64_t end) {
      AppendRows(params, params.sequences[s], first, begin, end);
    });
  }
}

}  // namespace deltafill::kernels::cpu
