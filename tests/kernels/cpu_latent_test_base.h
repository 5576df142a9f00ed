// What the tests of the CPU's latent attention share: random layers, caches in pages, calls.
#ifndef DELTAFILL_TESTS_KERNELS_CPU_LATENT_TEST_BASE_H_
#define DELTAFILL_TESTS_KERNELS_CPU_LATENT_TEST_BASE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/latent_reference.h"
#include "tests/testing/random.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {

inline LatentShape ShapeOf(const test::LatentDims& dims) {
  return {.heads = static_cast<int>(dims.heads),
          .nope_dim = static_cast<int>(dims.nope_dim),
          .rope_dim = static_cast<int>(dims.rope_dim),
          .value_dim = static_cast<int>(dims.value_dim),
          .rank = static_cast<int>(dims.rank)};
}

// A tiny layer, odd dims, no shared part, a head cut by a column tile, a real head.
inline constexpr test::LatentDims kLatentDims[] = {{1, 5, 0, 3, 7},
                                                   {3, 24, 8, 20, 40},
                                                   {2, 16, 0, 16, 32},
                                                   {5, 100, 12, 70, 64},
                                                   {2, 128, 64, 128, 512}};
inline constexpr test::LatentDims kOddDims = kLatentDims[1];

// Latents of one sequence, dense and in pages. Rows of the pages past the end are NaN: nothing may
// depend on them.
class CachedLatents {
 public:
  CachedLatents(const test::LatentDims& dims, int64_t tokens, test::Random& random)
      : CachedLatents(dims, random.NormalVector(tokens * dims.LatentWidth())) {}
  CachedLatents(const test::LatentDims& dims, std::vector<float> dense) : dense_(std::move(dense)) {
    const int64_t page_elements = kLatentPageTokens * dims.LatentWidth();
    const int64_t elements = static_cast<int64_t>(dense_.size());
    for (int64_t first = 0; first < elements; first += page_elements) {
      pages_.emplace_back(static_cast<size_t>(page_elements),
                          std::numeric_limits<float>::quiet_NaN());
      std::copy_n(dense_.begin() + first, std::min(page_elements, elements - first),
                  pages_.back().begin());
    }
    for (auto& page : pages_) pointers_.push_back(page.data());
  }

  const std::vector<float>& dense() const { return dense_; }
  LatentSequence At(int64_t first_token) const { return {pointers_, first_token}; }

 private:
  std::vector<float> dense_;
  std::vector<std::vector<float>> pages_;
  std::vector<void*> pointers_;
};

class CpuLatentTest : public CpuBackendTest {
 protected:
  std::unique_ptr<LatentProjection> Project(const test::LatentDims& dims,
                                            std::span<const float> w) {
    std::unique_ptr<LatentProjection> projection;
    const Status status =
        backend_->NewLatentProjection(w.data(), DType::kF32, ShapeOf(dims), &projection);
    EXPECT_TRUE(status.ok()) << status.message();
    return projection;
  }

  // Rows of packed sequences; sequence s has lengths[s] of them.
  std::vector<float> Prefill(const LatentProjection& projection, std::span<const float> q,
                             std::span<const int64_t> lengths,
                             std::span<const LatentSequence> sequences, int threads,
                             int64_t padding = 0) {
    std::vector<int64_t> offsets = {0};
    for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
    const LatentShape& shape = projection.shape();
    PlacedRows placed(q, offsets.back(), shape.QueryWidth(), padding, padding);
    PlacedRows o(offsets.back(), shape.OutputWidth(), padding, padding);
    const Status status = Lane(threads)->LatentPrefill({.projection = &projection,
                                                        .q = placed,
                                                        .offsets = offsets,
                                                        .sequences = sequences,
                                                        .o = o});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(o.SurroundingsIntact());
    return o.Dense();
  }

  // Rows [first, first + rows) of one sequence, given the queries of all its rows.
  std::vector<float> PrefillRange(const LatentProjection& projection, std::span<const float> q,
                                  const CachedLatents& latents, int64_t first, int64_t rows,
                                  int threads = 1) {
    const LatentSequence sequences[] = {latents.At(first)};
    const int64_t lengths[] = {rows};
    return Prefill(projection, Slice(q, first, rows, projection.shape().QueryWidth()), lengths,
                   sequences, threads, threads - 1);
  }

  std::vector<float> Step(const LatentProjection& projection, std::span<const float> q,
                          std::span<const LatentSequence> sequences, int threads,
                          int64_t padding = 0) {
    const int64_t batch = static_cast<int64_t>(sequences.size());
    const LatentShape& shape = projection.shape();
    PlacedRows placed(q, batch, shape.QueryWidth(), padding, padding);
    PlacedRows o(batch, shape.OutputWidth(), padding, padding);
    const Status status = Lane(threads)->LatentStep(
        {.projection = &projection, .q = placed, .sequences = sequences, .o = o});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(o.SurroundingsIntact());
    return o.Dense();
  }
};

inline double DefaultScale(const test::LatentDims& dims) {
  return 1.0 / std::sqrt(static_cast<double>(dims.nope_dim + dims.rope_dim));
}

// A layer's weights, of a size that keeps keys and values near 1.
inline std::vector<float> RandomProjection(const test::LatentDims& dims, test::Random& random) {
  return random.NormalVector(dims.ProjectionRows() * dims.rank,
                             1.0 / std::sqrt(static_cast<double>(dims.rank)));
}

}  // namespace deltafill::kernels

#endif  // DELTAFILL_TESTS_KERNELS_CPU_LATENT_TEST_BASE_H_
