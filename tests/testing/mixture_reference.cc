#include "tests/testing/mixture_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace deltafill::test {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Row `row` of [*, x.size()] times x.
template <typename Element>
double Dot(std::span<const float> matrix, int64_t row, std::span<const Element> x) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += static_cast<double>(matrix[static_cast<size_t>(row) * x.size() + i]) * x[i];
  }
  return sum;
}

}  // namespace

MixtureReference::Routing MixtureReference::Route(std::span<const float> x) const {
  std::vector<double> scores;
  std::vector<double> choice;
  for (int64_t e = 0; e < experts; ++e) {
    scores.push_back(Sigmoid(Dot(router, e, x)));
    choice.push_back(scores.back() + (bias.empty() ? 0.0 : bias[static_cast<size_t>(e)]));
  }
  std::vector<int64_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return choice[static_cast<size_t>(a)] > choice[static_cast<size_t>(b)];
  });
  Routing routing;
  routing.margin = std::numeric_limits<double>::infinity();
  if (top_k < experts) {
    routing.margin = choice[static_cast<size_t>(order[static_cast<size_t>(top_k - 1)])] -
                     choice[static_cast<size_t>(order[static_cast<size_t>(top_k)])];
  }
  routing.experts.assign(order.begin(), order.begin() + top_k);
  std::sort(routing.experts.begin(), routing.experts.end());
  double sum = 0.0;
  for (int64_t e : routing.experts) {
    const size_t at = static_cast<size_t>(e);
    routing.weights.push_back(biased_weights ? choice[at] : scores[at]);
    sum += routing.weights.back();
  }
  for (double& weight : routing.weights) {
    weight = (renormalize ? weight / (sum + 1e-20) : weight) * routed_scale;
  }
  return routing;
}

std::vector<double> MixtureReference::Row(std::span<const float> x,
                                          std::span<const float> expert_x) const {
  std::vector<double> y(static_cast<size_t>(hidden), 0.0);
  const Routing routing = Route(x);
  for (size_t k = 0; k < routing.experts.size(); ++k) {
    const size_t expert = static_cast<size_t>(routing.experts[k]);
    std::vector<double> inner;
    for (int64_t i = 0; i < width; ++i) {
      const double gate = Dot<float>(gate_up[expert], i, expert_x);
      inner.push_back(gate * Sigmoid(gate) * Dot<float>(gate_up[expert], width + i, expert_x));
      if (round_inner != nullptr) inner.back() = round_inner(static_cast<float>(inner.back()));
    }
    for (int64_t i = 0; i < hidden; ++i) {
      y[static_cast<size_t>(i)] += routing.weights[k] * Dot<double>(down[expert], i, inner);
    }
  }
  return y;
}

}  // namespace deltafill::test
