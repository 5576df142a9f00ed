#include "tests/testing/latent_reference.h"

#include <algorithm>
#include <cmath>

namespace deltafill::test {

LatentReference::LatentReference(const LatentDims& dims, std::span<const float> w,
                                 std::span<const float> latents, double scale,
                                 std::span<const float> expanded)
    : dims_(dims), scale_(scale) {
  if (expanded.empty()) expanded = latents;
  const int64_t tokens = static_cast<int64_t>(latents.size()) / dims.LatentWidth();
  const int64_t head_rows = dims.nope_dim + dims.value_dim;
  for (int64_t token = 0; token < tokens; ++token) {
    const float* const c = expanded.data() + token * dims.LatentWidth();
    const float* const shared = latents.data() + token * dims.LatentWidth() + dims.rank;
    for (int64_t row = 0; row < dims.ProjectionRows(); ++row) {
      double sum = 0.0;
      for (int64_t r = 0; r < dims.rank; ++r) {
        sum += static_cast<double>(w[static_cast<size_t>(row * dims.rank + r)]) * c[r];
      }
      const int64_t in_head = row % head_rows;
      (in_head < dims.nope_dim ? keys_ : values_).push_back(sum);
      if (in_head == dims.nope_dim - 1) keys_.insert(keys_.end(), shared, shared + dims.rope_dim);
    }
  }
}

std::vector<double> LatentReference::Attend(std::span<const float> q, int64_t position) const {
  const int64_t key_dim = dims_.nope_dim + dims_.rope_dim;
  std::vector<double> o(static_cast<size_t>(dims_.OutputWidth()), 0.0);
  std::vector<double> scores(static_cast<size_t>(position + 1));
  for (int64_t head = 0; head < dims_.heads; ++head) {
    for (int64_t s = 0; s <= position; ++s) {
      const double* const k = keys_.data() + s * dims_.QueryWidth() + head * key_dim;
      double sum = 0.0;
      for (int64_t i = 0; i < key_dim; ++i)
        sum += q[static_cast<size_t>(head * key_dim + i)] * k[i];
      scores[static_cast<size_t>(s)] = scale_ * sum;
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double total = 0.0;
    double* const out = o.data() + head * dims_.value_dim;
    for (int64_t s = 0; s <= position; ++s) {
      const double p = std::exp(scores[static_cast<size_t>(s)] - max);
      const double* const v = values_.data() + s * dims_.OutputWidth() + head * dims_.value_dim;
      total += p;
      for (int64_t i = 0; i < dims_.value_dim; ++i) out[i] += p * v[i];
    }
    for (int64_t i = 0; i < dims_.value_dim; ++i) out[i] /= total;
  }
  return o;
}

}  // namespace deltafill::test
