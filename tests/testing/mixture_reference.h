// Mixture of experts in float64, from the equations of kernels/mixture_of_experts.h.
#ifndef DELTAFILL_TESTS_TESTING_MIXTURE_REFERENCE_H_
#define DELTAFILL_TESTS_TESTING_MIXTURE_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace deltafill::test {

struct MixtureReference {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t hidden = 0;
  int64_t width = 0;
  bool renormalize = true;
  bool biased_weights = false;
  double routed_scale = 1.0;
  std::vector<float> router;                // [experts, hidden]
  std::vector<float> bias;                  // [experts] or empty
  std::vector<std::vector<float>> gate_up;  // an expert: [2 * width, hidden]
  std::vector<std::vector<float>> down;     // an expert: [hidden, width]
  float (*round_inner)(float) = nullptr;    // of what down multiplies; nullptr: not rounded

  struct Routing {
    std::vector<int64_t> experts;  // ascending
    std::vector<double> weights;
    double margin = 0.0;  // between the last score chosen and the first one left out
  };
  Routing Route(std::span<const float> x) const;

  // What is added to the row's y. `expert_x` is the row as the experts see it.
  std::vector<double> Row(std::span<const float> x, std::span<const float> expert_x) const;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_MIXTURE_REFERENCE_H_
