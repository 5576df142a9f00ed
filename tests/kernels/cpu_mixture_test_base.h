// What the tests of the CPU's mixture of experts share: random mixtures, and running them.
#ifndef DELTAFILL_TESTS_KERNELS_CPU_MIXTURE_TEST_BASE_H_
#define DELTAFILL_TESTS_KERNELS_CPU_MIXTURE_TEST_BASE_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/mixture_reference.h"
#include "tests/testing/random.h"

namespace deltafill::kernels {

struct MixtureSizes {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t hidden = 0;
  int64_t width = 0;
};

inline test::MixtureReference RandomMixture(const MixtureSizes& sizes, test::Random& random) {
  test::MixtureReference m;
  m.experts = sizes.experts;
  m.top_k = sizes.top_k;
  m.hidden = sizes.hidden;
  m.width = sizes.width;
  m.routed_scale = 2.446f;
  m.router = random.NormalVector(sizes.experts * sizes.hidden,
                                 1.0 / std::sqrt(static_cast<double>(sizes.hidden)));
  m.bias = random.NormalVector(sizes.experts, 0.2);
  for (int64_t e = 0; e < sizes.experts; ++e) {
    m.gate_up.push_back(random.NormalVector(2 * sizes.width * sizes.hidden, 0.1));
    m.down.push_back(random.NormalVector(sizes.hidden * sizes.width, 0.1));
  }
  return m;
}

// A mixture with its weights in the backend.
class LoadedMixture {
 public:
  template <typename NewWeight>
  LoadedMixture(const test::MixtureReference& mixture, const NewWeight& new_weight)
      : mixture_(mixture) {
    for (size_t e = 0; e < mixture.gate_up.size(); ++e) {
      matrices_.push_back(new_weight(mixture.gate_up[e], 2 * mixture.width, mixture.hidden));
      matrices_.push_back(new_weight(mixture.down[e], mixture.hidden, mixture.width));
      experts_.push_back({matrices_[2 * e].get(), matrices_[2 * e + 1].get()});
    }
  }

  MixtureParams Params(ConstRows x, MutableRows y, int64_t rows) const {
    return {.shape = {.experts = static_cast<int>(mixture_.experts),
                      .top_k = static_cast<int>(mixture_.top_k),
                      .hidden = mixture_.hidden,
                      .expert_width = mixture_.width,
                      .renormalize = mixture_.renormalize,
                      .biased_weights = mixture_.biased_weights,
                      .routed_scale = static_cast<float>(mixture_.routed_scale)},
            .x = x,
            .router = mixture_.router.data(),
            .correction_bias = mixture_.bias.empty() ? nullptr : mixture_.bias.data(),
            .experts = experts_,
            .y = y,
            .rows = rows};
  }

  // y_before: zeros if empty.
  std::vector<float> Run(Operators& lane, std::span<const float> x, int64_t padding = 0,
                         std::span<const float> y_before = {}, bool step = false) const {
    const int64_t rows = static_cast<int64_t>(x.size()) / mixture_.hidden;
    const std::vector<float> zeros(x.size(), 0.0f);
    PlacedRows placed(x, rows, mixture_.hidden, padding, padding);
    PlacedRows y(y_before.empty() ? zeros : y_before, rows, mixture_.hidden, padding, padding);
    MixtureParams params = Params(placed, y, rows);
    params.step = step;
    const Status status = lane.MixtureOfExperts(params);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.SurroundingsIntact());
    return y.Dense();
  }

 private:
  const test::MixtureReference& mixture_;
  std::vector<std::unique_ptr<Weight>> matrices_;
  std::vector<ExpertWeights> experts_;
};

}  // namespace deltafill::kernels

#endif  // DELTAFILL_TESTS_KERNELS_CPU_MIXTURE_TEST_BASE_H_
