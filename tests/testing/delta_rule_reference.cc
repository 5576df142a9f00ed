#include "tests/testing/delta_rule_reference.h"

#include <cmath>

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::GateKind;
using kernels::WriteRule;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double Softplus(double x) {
  return x > 0.0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

// g of value head `head`, channel `channel`, at `row`.
double LogDecay(const DeltaRuleShape& shape, const DeltaRuleRows& rows, int64_t row, int head,
                int channel) {
  if (shape.gate == GateKind::kNone) return 0.0;
  const int width = GateWidth(shape);
  const size_t column = static_cast<size_t>(head) * width + (width > 1 ? channel : 0);
  const double f = rows.f[static_cast<size_t>(row) * shape.value_heads * width + column];
  const double biased = f + (rows.dt_bias.empty() ? 0.0 : rows.dt_bias[column]);
  switch (shape.gate) {
    case GateKind::kScalarSoftplus:
    case GateKind::kChannelSoftplus:
      return -std::exp(static_cast<double>(rows.a_log[head])) * Softplus(biased);
    case GateKind::kChannelLowerBound:
      return shape.lower_bound * Sigmoid(std::exp(static_cast<double>(rows.a_log[head])) * biased);
    default:
      return f;
  }
}

// One head's q or k at one row, normalised if the shape says so.
std::vector<double> HeadVector(const DeltaRuleShape& shape, const float* x, double scale) {
  double squares = 0.0;
  for (int c = 0; c < shape.key_dim; ++c) squares += static_cast<double>(x[c]) * x[c];
  const double norm = shape.normalize_qk ? std::sqrt(squares + 1e-6) : 1.0;
  std::vector<double> out(shape.key_dim);
  for (int c = 0; c < shape.key_dim; ++c) out[c] = x[c] / norm * scale;
  return out;
}

double QueryScale(const DeltaRuleShape& shape) {
  return shape.query_scale == 0.0f ? 1.0 / std::sqrt(static_cast<double>(shape.key_dim))
                                   : static_cast<double>(shape.query_scale);
}

double Beta(const DeltaRuleShape& shape, const DeltaRuleRows& rows, int64_t row, int head) {
  const double beta = rows.beta[static_cast<size_t>(row) * shape.value_heads + head];
  return shape.beta_is_logit ? Sigmoid(beta) : beta;
}

// S <- Diag(exp g) S;  e = beta (v - S^T k);  S <- S + k e^T, for state [values, K] of one head.
void Write(const DeltaRuleShape& shape, const DeltaRuleRows& rows, int64_t row, int head,
           const std::vector<double>& v, double* state) {
  const int key_dim = shape.key_dim;
  const int key_head = head / (shape.value_heads / shape.heads);
  const std::vector<double> k =
      HeadVector(shape, rows.k.data() + (row * shape.heads + key_head) * key_dim, 1.0);
  std::vector<double> decay(key_dim);
  for (int c = 0; c < key_dim; ++c) decay[c] = std::exp(LogDecay(shape, rows, row, head, c));
  const double beta = shape.write == WriteRule::kDelta ? Beta(shape, rows, row, head) : 1.0;
  for (size_t i = 0; i < v.size(); ++i) {
    double* s = state + i * key_dim;
    double predicted = 0.0;
    for (int c = 0; c < key_dim; ++c) {
      s[c] *= decay[c];
      predicted += s[c] * k[c];
    }
    const double e = shape.write == WriteRule::kDelta ? beta * (v[i] - predicted) : v[i];
    for (int c = 0; c < key_dim; ++c) s[c] += k[c] * e;
  }
}

std::vector<double> ValueVector(const DeltaRuleShape& shape, const DeltaRuleRows& rows, int64_t row,
                                int head) {
  const float* v = rows.v.data() + (row * shape.value_heads + head) * shape.value_dim;
  return std::vector<double>(v, v + shape.value_dim);
}

}  // namespace

int GateWidth(const DeltaRuleShape& shape) {
  switch (shape.gate) {
    case GateKind::kNone:
      return 0;
    case GateKind::kScalarSoftplus:
    case GateKind::kScalarPreactivated:
      return 1;
    default:
      return shape.key_dim;
  }
}

std::vector<double> ReferenceForward(const DeltaRuleShape& shape, const DeltaRuleRows& rows,
                                     std::vector<double>* state) {
  const int key_dim = shape.key_dim;
  const int value_dim = shape.value_dim;
  std::vector<double> o(static_cast<size_t>(rows.rows) * shape.value_heads * value_dim);
  for (int head = 0; head < shape.value_heads; ++head) {
    const int key_head = head / (shape.value_heads / shape.heads);
    double* s = state->data() + static_cast<size_t>(head) * value_dim * key_dim;
    for (int64_t row = 0; row < rows.rows; ++row) {
      Write(shape, rows, row, head, ValueVector(shape, rows, row, head), s);
      const std::vector<double> q = HeadVector(
          shape, rows.q.data() + (row * shape.heads + key_head) * key_dim, QueryScale(shape));
      double* out = o.data() + (row * shape.value_heads + head) * value_dim;
      for (int i = 0; i < value_dim; ++i) {
        for (int c = 0; c < key_dim; ++c) out[i] += s[i * key_dim + c] * q[c];
      }
    }
  }
  return o;
}

void ReferenceSummary(const DeltaRuleShape& shape, const DeltaRuleRows& rows,
                      std::vector<double>* m, std::vector<double>* b) {
  const size_t key_dim = static_cast<size_t>(shape.key_dim);
  const size_t value_dim = static_cast<size_t>(shape.value_dim);
  m->assign(shape.value_heads * key_dim * key_dim, 0.0);
  b->assign(shape.value_heads * value_dim * key_dim, 0.0);
  const std::vector<double> no_values(key_dim, 0.0);
  for (int head = 0; head < shape.value_heads; ++head) {
    // Row i of `columns` is the state column that started from e_i.
    std::vector<double> columns(key_dim * key_dim, 0.0);
    for (size_t i = 0; i < key_dim; ++i) columns[i * key_dim + i] = 1.0;
    for (int64_t row = 0; row < rows.rows; ++row) {
      Write(shape, rows, row, head, ValueVector(shape, rows, row, head),
            b->data() + head * value_dim * key_dim);
      Write(shape, rows, row, head, no_values, columns.data());
    }
    for (size_t out = 0; out < key_dim; ++out) {
      for (size_t in = 0; in < key_dim; ++in) {
        (*m)[(head * key_dim + out) * key_dim + in] = columns[in * key_dim + out];
      }
    }
  }
}

}  // namespace deltafill::test
