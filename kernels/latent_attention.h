// Multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1; without rotation in
// Kimi Linear, arXiv:2510.26692): parameters of appending to the latent cache, of prefill attention
// and of the one-token step. Per token t, with latent c_t [rank] and shared key part r_t
// [rope_dim]:
//
//   k_t[h] = (W_k[h] c_t, r_t)      v_t[h] = W_v[h] c_t
//   o_t[h] = sum_{s <= t} softmax_s(scale q_t[h] . k_s[h]) v_s[h]
//
// The cache keeps (c_t, r_t) only: rank + rope_dim values a token and layer. Its pages are
// kLatentPageTokens rows long, at absolute positions, so a page is also the piece that is stored.
#ifndef DELTAFILL_KERNELS_LATENT_ATTENTION_H_
#define DELTAFILL_KERNELS_LATENT_ATTENTION_H_

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace deltafill::kernels {

// Tokens of a page of the latent cache; a multiple of kBlockTokens.
inline constexpr int64_t kLatentPageTokens = 4096;

struct LatentShape {
  int heads = 0;
  int nope_dim = 0;    // of q and k: the part that comes from the latent
  int rope_dim = 0;    // of q and k: the part shared by the heads (not rotated here); may be 0
  int value_dim = 0;   // of v
  int rank = 0;        // of the latent
  float scale = 0.0f;  // 0 means (nope_dim + rope_dim)^-1/2

  int64_t LatentWidth() const { return rank + rope_dim; }
  int64_t QueryWidth() const { return int64_t{heads} * (nope_dim + rope_dim); }
  int64_t ProjectionRows() const { return int64_t{heads} * (nope_dim + value_dim); }
  int64_t OutputWidth() const { return int64_t{heads} * value_dim; }
};

// W_k and W_v of one layer in the backend's memory and form, made once at load from kv_b_proj
// [heads * (nope_dim + value_dim), rank] (per head nope_dim rows of W_k, then value_dim of W_v).
class LatentProjection {
 public:
  virtual ~LatentProjection() = default;
  virtual const LatentShape& shape() const = 0;  // its scale is never 0
};

// The latents of one sequence at one layer. pages[i] holds rows [i, i + 1) * kLatentPageTokens of
// [LatentWidth()] each, contiguous, in the backend's activation dtype. Rows past those that a call
// reads may hold anything, NaN included.
struct LatentSequence {
  std::span<void* const> pages;  // host array of backend memory; covers every token named below
  int64_t first_token = 0;       // position of the sequence's first row in this call
};

// Writes rows into the caches: the first `rank` columns normalised (rms_norm * norm_weight), the
// others as they are. Row i of sequence s goes to position sequences[s].first_token + i.
struct LatentAppendParams {
  ConstRows x;                         // [rows, LatentWidth()]: kv_a_proj_with_mqa's output
  const float* norm_weight = nullptr;  // [rank]
  float eps = 1e-6f;
  int rank = 0;
  int rope_dim = 0;
  SequenceOffsets offsets;
  std::span<const LatentSequence> sequences;  // host
};

// Causal attention of each row over its sequence's cache, its own position included, which has been
// appended before. Key tiles are walked in absolute order from token 0, so that a row's bits depend
// on its own q and the cache alone. first_token must be a multiple of kBlockTokens.
struct LatentPrefillParams {
  const LatentProjection* projection = nullptr;
  ConstRows q;  // [rows, heads * (nope_dim + rope_dim)]
  SequenceOffsets offsets;
  std::span<const LatentSequence> sequences;  // host
  MutableRows o;                              // [rows, heads * value_dim]; does not overlap q
};

// Decoding: one row a sequence, at any position; the absorbed form, which reads latents only. Bits
// of its own, which do not depend on the batch.
struct LatentStepParams {
  const LatentProjection* projection = nullptr;
  ConstRows q;                                // [batch, heads * (nope_dim + rope_dim)]
  std::span<const LatentSequence> sequences;  // host [batch]; first_token: the row's position
  MutableRows o;                              // [batch, heads * value_dim]
};

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_LATENT_ATTENTION_H_
