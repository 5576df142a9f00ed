#include "tests/testing/operator_reference.h"

#include <cmath>

namespace deltafill::test {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Row `row` of a sequence, which may reach back into its tail.
double RowOrTail(std::span<const float> x, std::span<const float> tail, int64_t row,
                 int64_t channel, int64_t channels) {
  if (row >= 0) return x[static_cast<size_t>(row * channels + channel)];
  return tail.empty() ? 0.0 : tail[static_cast<size_t>(channel * 3 + 3 + row)];
}

}  // namespace

std::vector<double> MatMulReference(std::span<const float> x, std::span<const float> w,
                                    std::span<const float> bias, std::span<const float> y_before,
                                    int64_t rows, int64_t out_features, int64_t in_features) {
  std::vector<double> y(static_cast<size_t>(rows * out_features));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < out_features; ++n) {
      const size_t at = static_cast<size_t>(row * out_features + n);
      double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(n)];
      if (!y_before.empty()) sum += y_before[at];
      const float* x_row = x.data() + row * in_features;
      const float* w_row = w.data() + n * in_features;
      for (int64_t k = 0; k < in_features; ++k) sum += static_cast<double>(x_row[k]) * w_row[k];
      y[at] = sum;
    }
  }
  return y;
}

std::vector<double> RmsNormReference(std::span<const float> x, std::span<const float> weight,
                                     std::span<const float> gate, int64_t rows, int64_t groups,
                                     int64_t width, double eps) {
  std::vector<double> y(x.size());
  for (int64_t group = 0; group < rows * groups; ++group) {
    const size_t first = static_cast<size_t>(group * width);
    double squares = 0.0;
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
      squares += static_cast<double>(x[first + i]) * x[first + i];
    }
    const double root = std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
      y[first + i] = x[first + i] / root * weight[i];
      if (!gate.empty()) y[first + i] *= Sigmoid(gate[first + i]);
    }
  }
  return y;
}

std::vector<double> ShortConvReference(std::span<const float> x, std::span<const float> weight,
                                       std::span<const float> tail, int64_t rows,
                                       int64_t channels) {
  std::vector<double> y(static_cast<size_t>(rows * channels));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0.0;
      for (int64_t j = 0; j < 4; ++j) {
        sum += weight[static_cast<size_t>(c * 4 + j)] * RowOrTail(x, tail, t - 3 + j, c, channels);
      }
      y[static_cast<size_t>(t * channels + c)] = sum * Sigmoid(sum);
    }
  }
  return y;
}

std::vector<float> ConvTailReference(std::span<const float> x, std::span<const float> tail,
                                     int64_t rows, int64_t channels) {
  std::vector<float> out(static_cast<size_t>(channels * 3));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < 3; ++j) {
      out[static_cast<size_t>(c * 3 + j)] =
          static_cast<float>(RowOrTail(x, tail, rows - 3 + j, c, channels));
    }
  }
  return out;
}

std::vector<double> SwiGluReference(std::span<const float> gate, std::span<const float> up) {
  std::vector<double> y(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
  return y;
}

}  // namespace deltafill::test
