// Multi-head latent attention in float64, from the equations of kernels/latent_attention.h.
#ifndef DELTAFILL_TESTS_TESTING_LATENT_REFERENCE_H_
#define DELTAFILL_TESTS_TESTING_LATENT_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace deltafill::test {

struct LatentDims {
  int64_t heads = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t value_dim = 0;
  int64_t rank = 0;

  constexpr int64_t QueryWidth() const { return heads * (nope_dim + rope_dim); }
  constexpr int64_t OutputWidth() const { return heads * value_dim; }
  constexpr int64_t LatentWidth() const { return rank + rope_dim; }
  constexpr int64_t ProjectionRows() const { return heads * (nope_dim + value_dim); }
};

// Keys and values of all cached tokens, expanded once.
class LatentReference {
 public:
  // w: [ProjectionRows, rank]; latents: [tokens, LatentWidth] as cached. `expanded` are the latents
  // that w multiplies, where they differ (rounded, for instance); empty: the same.
  LatentReference(const LatentDims& dims, std::span<const float> w, std::span<const float> latents,
                  double scale, std::span<const float> expanded = {});

  // o [OutputWidth] of a query [QueryWidth] at `position`.
  std::vector<double> Attend(std::span<const float> q, int64_t position) const;

 private:
  LatentDims dims_;
  double scale_;
  std::vector<double> keys_;    // [tokens, QueryWidth]
  std::vector<double> values_;  // [tokens, OutputWidth]
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_LATENT_REFERENCE_H_
