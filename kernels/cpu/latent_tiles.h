// Vectorised parts of latent attention, between its operators (latent_prefill.cc, latent_step.cc)
// and the instruction sets: softmax over tiles of keys with a running maximum, and what goes with
// it. Rows are independent; the order of every sum follows from its width alone.
#ifndef DELTAFILL_KERNELS_CPU_LATENT_TILES_H_
#define DELTAFILL_KERNELS_CPU_LATENT_TILES_H_

#include <cstdint>

#include "kernels/tensor.h"

namespace deltafill::kernels::cpu {

// The softmax of `rows` rows so far: with m the largest score, sum = sum_j exp(s_j - m). An output
// accumulated beside it is sum_j exp(s_j - m) v_j.
struct RunningSoftmax {
  float* max = nullptr;      // [rows]
  float* sum = nullptr;      // [rows]
  float* rescale = nullptr;  // [rows] exp(max before the last tile - max), for what was accumulated
};

// One tile of scores [rows, stride], `width` of each row valid; causal: the first r + 1 of row r.
struct ScoreTile {
  float* scores = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t width = 0;
  bool causal = false;
};

// scores becomes exp(scores - max), softmax takes the tile in. `first`: nothing came before, and
// softmax holds nothing yet.
void AddTile(const ScoreTile& tile, bool first, const RunningSoftmax& softmax);

// An output [rows, width] at `stride`.
struct OutputRows {
  float* o = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t width = 0;
};

// o = product, or o rescale + product unless `first`.
void AddProduct(const float* product, int64_t product_stride, bool first, const float* rescale,
                const OutputRows& output);

// The block of the rows' own positions, which ends them: with the probabilities of a causal tile,
// o[r] = (o[r] rescale[r] + sum_{j <= r} probabilities[r, j] v[j]) / sum[r]. Values past a row are
// not read, so that nothing of them, a NaN included, reaches it.
void FinishWithOwnBlock(const ScoreTile& probabilities, const float* v, int64_t v_stride,
                        bool first, const RunningSoftmax& softmax, const OutputRows& output);

// softmax and o take in the later part `other`, whose output is other_o, dense.
void MergePart(const RunningSoftmax& other, const float* other_o, bool first,
               const RunningSoftmax& softmax, const OutputRows& output);

// to[rows, width], dense, = scale from.
void PackScaled(const float* from, int64_t row_stride, int64_t rows, int64_t width, float scale,
                float* to);

// Products with W of one head, row-major [rows, width] of `dtype` (fp32 or bf16).
struct HeadMatrix {
  const void* w = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t width = 0;
};
// y[width] = scale W^T x
void MultiplyTransposed(const HeadMatrix& matrix, const float* x, float scale, float* y);
// y[rows] = W x / divisor
void MultiplyDivided(const HeadMatrix& matrix, const float* x, float divisor, float* y);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_LATENT_TILES_H_
