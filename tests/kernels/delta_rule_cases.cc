#include "tests/kernels/delta_rule_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/delta_rule.h"
#include "kernels/cpu/thread_team.h"

namespace deltafill::test {
namespace {

using kernels::ConstRows;
using kernels::DeltaRuleInputs;
using kernels::DeltaRuleShape;
using kernels::DType;
using kernels::GateKind;
using kernels::WriteRule;

// A log decay < 0 for token `row` of a block-aligned sequence.
double DrawDecay(Decays decays, int64_t row, Random& random) {
  const double slow = -1e-4 * random.Uniform(0.5, 2.0);
  switch (decays) {
    case Decays::kTypical:
      return -std::exp(random.Normal() - 1.0);
    case Decays::kSlow:
      return slow;
    case Decays::kFast:
      return random.Uniform(-60.0, -40.0);
    case Decays::kLogUniform:
      return -std::exp(random.Uniform(std::log(1e-4), std::log(50.0)));
    case Decays::kFastThenSlow:
      return row % 64 < 20 ? -50.0 : slow;
    case Decays::kFastTokens:
      return row % 13 == 5 ? -50.0 : slow;
  }
  return slow;
}

// The raw input that gives log decay g (for lower bounds: at most 0.999 of the bound).
double RawGate(const DeltaRuleShape& shape, double g, double rate, double bias) {
  switch (shape.gate) {
    case GateKind::kScalarSoftplus:
    case GateKind::kChannelSoftplus: {
      const double y = -g / rate;  // softplus^-1(y) = log(e^y - 1)
      return (y > 30.0 ? y : std::log(std::expm1(y))) - bias;
    }
    case GateKind::kChannelLowerBound: {
      const double ratio = std::min(g / shape.lower_bound, 0.999);
      return std::log(ratio / (1.0 - ratio)) / rate - bias;
    }
    default:
      return g;
  }
}

bool HasRate(GateKind gate) {
  return gate == GateKind::kScalarSoftplus || gate == GateKind::kChannelSoftplus ||
         gate == GateKind::kChannelLowerBound;
}

// Rows copied into a wider stride whose gaps hold NaN.
class PaddedRows {
 public:
  PaddedRows(const std::vector<float>& from, int64_t rows, int64_t padding) {
    const int64_t width = rows == 0 ? 0 : static_cast<int64_t>(from.size()) / rows;
    stride_ = width + padding;
    values_.assign(static_cast<size_t>(rows * stride_), std::numeric_limits<float>::quiet_NaN());
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(from.begin() + row * width, width, values_.begin() + row * stride_);
    }
  }
  ConstRows rows() const { return {values_.data(), DType::kF32, stride_}; }

 private:
  std::vector<float> values_;
  int64_t stride_ = 0;
};

// An output buffer full of NaN between guards of a known value.
class GuardedOutput {
 public:
  GuardedOutput(int64_t rows, int64_t width, int64_t padding)
      : rows_(rows), width_(width), stride_(width + padding) {
    values_.assign(static_cast<size_t>(2 * kGuard + rows * stride_), kGuardValue);
    for (int64_t row = 0; row < rows; ++row) {
      std::fill_n(data() + row * stride_, width, std::numeric_limits<float>::quiet_NaN());
    }
  }
  float* data() { return values_.data() + kGuard; }
  int64_t stride() const { return stride_; }

  std::vector<float> Values() {
    std::vector<float> out;
    for (int64_t row = 0; row < rows_; ++row) {
      out.insert(out.end(), data() + row * stride_, data() + row * stride_ + width_);
    }
    return out;
  }
  bool GuardsIntact() const {
    for (int64_t i = 0; i < static_cast<int64_t>(values_.size()); ++i) {
      const int64_t inside = i - kGuard;
      const bool is_output = inside >= 0 && inside < rows_ * stride_ && inside % stride_ < width_;
      if (!is_output && values_[i] != kGuardValue) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 37;
  static constexpr float kGuardValue = 12345.0f;
  int64_t rows_;
  int64_t width_;
  int64_t stride_;
  std::vector<float> values_;
};

struct PaddedInputs {
  PaddedInputs(const DeltaRuleRows& rows, int64_t padding)
      : q(rows.q, rows.rows, padding),
        k(rows.k, rows.rows, padding),
        v(rows.v, rows.rows, padding),
        f(rows.f, rows.rows, padding),
        beta(rows.beta, rows.rows, padding),
        inputs{q.rows(), k.rows(), v.rows(), f.rows(), beta.rows()} {
    if (!rows.a_log.empty()) inputs.a_log = rows.a_log.data();
    if (!rows.dt_bias.empty()) inputs.dt_bias = rows.dt_bias.data();
  }
  PaddedRows q, k, v, f, beta;
  DeltaRuleInputs inputs;
};

std::vector<float> SliceRows(const std::vector<float>& from, int64_t rows, int64_t begin,
                             int64_t end) {
  const int64_t width = rows == 0 ? 0 : static_cast<int64_t>(from.size()) / rows;
  return std::vector<float>(from.begin() + begin * width, from.begin() + end * width);
}

void Append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void FillGates(const DeltaRuleShape& shape, Decays decays, Random& random, DeltaRuleRows& rows) {
  const int width = GateWidth(shape);
  if (HasRate(shape.gate)) {
    rows.a_log = random.UniformVector(shape.value_heads, -1.0, 1.5);
    rows.dt_bias = random.NormalVector(static_cast<int64_t>(shape.value_heads) * width);
  }
  rows.f.resize(static_cast<size_t>(rows.rows) * shape.value_heads * width);
  for (size_t i = 0; i < rows.f.size(); ++i) {
    const size_t column = i % (static_cast<size_t>(shape.value_heads) * width);
    const int64_t row = static_cast<int64_t>(i / (static_cast<size_t>(shape.value_heads) * width));
    const double rate =
        rows.a_log.empty() ? 1.0 : std::exp(static_cast<double>(rows.a_log[column / width]));
    const double bias = rows.dt_bias.empty() ? 0.0 : rows.dt_bias[column];
    rows.f[i] = static_cast<float>(RawGate(shape, DrawDecay(decays, row, random), rate, bias));
  }
}

}  // namespace

DeltaRuleRows RandomRows(const DeltaRuleShape& shape, int64_t rows, Decays decays, Random& random) {
  DeltaRuleRows out;
  out.rows = rows;
  const int64_t key_width = static_cast<int64_t>(shape.heads) * shape.key_dim;
  // Without the L2 norm, keys of length below 1 keep the recurrence bounded.
  const double scale = shape.normalize_qk ? 2.0 : 0.7 / std::sqrt(shape.key_dim);
  out.q = random.NormalVector(rows * key_width, scale);
  out.k = random.NormalVector(rows * key_width, scale);
  out.v = random.NormalVector(rows * shape.value_heads * shape.value_dim);
  if (shape.gate != GateKind::kNone) FillGates(shape, decays, random, out);
  if (shape.write == WriteRule::kDelta) {
    out.beta = shape.beta_is_logit ? random.NormalVector(rows * shape.value_heads, 2.0)
                                   : random.UniformVector(rows * shape.value_heads, 0.0, 2.0);
  }
  return out;
}

DeltaRuleRows Slice(const DeltaRuleShape&, const DeltaRuleRows& rows, int64_t begin, int64_t end) {
  DeltaRuleRows out;
  out.rows = end - begin;
  out.q = SliceRows(rows.q, rows.rows, begin, end);
  out.k = SliceRows(rows.k, rows.rows, begin, end);
  out.v = SliceRows(rows.v, rows.rows, begin, end);
  out.f = SliceRows(rows.f, rows.rows, begin, end);
  out.beta = SliceRows(rows.beta, rows.rows, begin, end);
  out.a_log = rows.a_log;
  out.dt_bias = rows.dt_bias;
  return out;
}

DeltaRuleRows Concatenate(const DeltaRuleRows& first, const DeltaRuleRows& second) {
  DeltaRuleRows out = first;
  out.rows += second.rows;
  Append(out.q, second.q);
  Append(out.k, second.k);
  Append(out.v, second.v);
  Append(out.f, second.f);
  Append(out.beta, second.beta);
  return out;
}

int64_t StateSize(const DeltaRuleShape& shape) {
  return static_cast<int64_t>(shape.value_heads) * shape.value_dim * shape.key_dim;
}

ForwardCall SingleSequence(const DeltaRuleShape& shape, const DeltaRuleRows& rows) {
  ForwardCall call;
  call.shape = shape;
  call.rows = rows;
  call.offsets = {0, rows.rows};
  return call;
}

ForwardResult RunForward(const ForwardCall& call) {
  const size_t sequences = call.offsets.size() - 1;
  const int64_t state_size = StateSize(call.shape);
  const PaddedInputs inputs(call.rows, call.padding);
  GuardedOutput o(call.rows.rows,
                  static_cast<int64_t>(call.shape.value_heads) * call.shape.value_dim,
                  call.padding);
  std::vector<const float*> initial(sequences, nullptr);
  for (size_t s = 0; s < call.initial_states.size(); ++s) {
    if (!call.initial_states[s].empty()) initial[s] = call.initial_states[s].data();
  }
  std::vector<GuardedOutput> finals(sequences, GuardedOutput(1, state_size, 0));
  std::vector<GuardedOutput> states(call.checkpoints.size(), GuardedOutput(1, state_size, 0));
  std::vector<float*> final_pointers;
  for (GuardedOutput& state : finals) final_pointers.push_back(state.data());
  std::vector<kernels::StateCheckpoint> checkpoints;
  for (size_t i = 0; i < call.checkpoints.size(); ++i) {
    checkpoints.push_back(
        {call.checkpoints[i].first, call.checkpoints[i].second, states[i].data()});
  }

  kernels::DeltaRuleForwardParams params;
  params.shape = call.shape;
  params.in = inputs.inputs;
  params.offsets = call.offsets;
  params.initial_states = call.initial_states.empty() ? nullptr : initial.data();
  params.o = {o.data(), DType::kF32, o.stride()};
  params.final_states = final_pointers.data();
  params.checkpoints = checkpoints;
  kernels::cpu::ThreadTeam team(call.threads);
  ForwardResult result;
  result.error = kernels::cpu::DeltaRuleForward(params, team).message();

  bool intact = o.GuardsIntact();
  result.o = o.Values();
  for (GuardedOutput& state : finals) {
    intact = intact && state.GuardsIntact();
    result.final_states.push_back(state.Values());
  }
  for (GuardedOutput& state : states) {
    intact = intact && state.GuardsIntact();
    result.checkpoints.push_back(state.Values());
  }
  if (result.error.empty() && !intact) result.error = "wrote outside the outputs";
  return result;
}

SummaryResult RunSummary(const DeltaRuleShape& shape, const DeltaRuleRows& rows, int threads) {
  const PaddedInputs inputs(rows, /*padding=*/3);
  GuardedOutput m(1, static_cast<int64_t>(shape.value_heads) * shape.key_dim * shape.key_dim, 0);
  GuardedOutput b(1, StateSize(shape), 0);
  kernels::DeltaRuleSummaryParams params;
  params.shape = shape;
  params.in = inputs.inputs;
  params.in.q = {};  // must not be read
  params.rows = rows.rows;
  params.m = m.data();
  params.b = b.data();
  kernels::cpu::ThreadTeam team(threads);
  SummaryResult result;
  result.error = kernels::cpu::DeltaRuleSummary(params, team).message();
  if (result.error.empty() && !(m.GuardsIntact() && b.GuardsIntact())) {
    result.error = "wrote outside the outputs";
  }
  result.m = m.Values();
  result.b = b.Values();
  return result;
}

std::string Describe(const DeltaRuleShape& shape) {
  return "H=" + std::to_string(shape.heads) + " HV=" + std::to_string(shape.value_heads) +
         " K=" + std::to_string(shape.key_dim) + " V=" + std::to_string(shape.value_dim) +
         " gate=" + std::to_string(static_cast<int>(shape.gate)) +
         " write=" + std::to_string(static_cast<int>(shape.write)) +
         " normalize=" + std::to_string(shape.normalize_qk) +
         " logit=" + std::to_string(shape.beta_is_logit);
}

std::vector<DeltaRuleShape> Family(int heads, int value_heads, int key_dim, int value_dim) {
  std::vector<DeltaRuleShape> family;
  for (int gate = 0; gate <= static_cast<int>(GateKind::kChannelPreactivated); ++gate) {
    for (const WriteRule write : {WriteRule::kDelta, WriteRule::kLinear}) {
      DeltaRuleShape shape;
      shape.heads = heads;
      shape.value_heads = value_heads;
      shape.key_dim = key_dim;
      shape.value_dim = value_dim;
      shape.gate = static_cast<GateKind>(gate);
      shape.write = write;
      family.push_back(shape);
    }
  }
  return family;
}

}  // namespace deltafill::test
