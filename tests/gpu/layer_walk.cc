#include "tests/gpu/layer_walk.h"

#include <algorithm>
#include <cmath>

namespace deltafill::test {

using kernels::DType;
using kernels::MutableRows;
using kernels::Weight;

namespace {

constexpr int64_t kDim = 128;

// Matrices made on the device, vectors on the host.
class WeightSource {
 public:
  WeightSource(kernels::Backend* backend, uint64_t seed)
      : backend_(backend), random_(seed), matrix_seed_(seed << 20) {
    Must(backend->NewOperators(1, &lane_));
  }

  // Uniform values that keep rows at their size: variance 1 / in.
  std::unique_ptr<Weight> Matrix(int64_t out, int64_t in) {
    std::unique_ptr<Weight> weight;
    const float limit = std::sqrt(3.0f / static_cast<float>(in));
    Must(backend_->NewRandomWeight(++matrix_seed_, limit, out, in, &weight));
    return weight;
  }

  std::unique_ptr<BackendBuffer> Vector(int64_t count, double scale, double mean) {
    const std::vector<float> values = random_.NormalVector(count, scale, mean);
    auto buffer = std::make_unique<BackendBuffer>(backend_, values.size() * sizeof(float));
    Must(lane_->CopyFromHost(buffer->as<void>(), values.data(), buffer->bytes()));
    Must(lane_->Synchronize());
    return buffer;
  }

 private:
  kernels::Backend* const backend_;
  Random random_;
  uint64_t matrix_seed_;
  std::unique_ptr<kernels::Operators> lane_;
};

// q, k, v before the convolution, the low-rank inputs and beta.
int64_t InputWidth(const WalkShape& shape) {
  return (3 * shape.Channels() + 2 * kDim + shape.heads + 7) / 8 * 8;
}

int64_t ScratchWidth(const WalkShape& shape) {
  return std::max(InputWidth(shape) + 3 * shape.Channels(), 3 * shape.intermediate);
}

MutableRows ColumnsFrom(MutableRows rows, int64_t first) {
  rows.data = static_cast<uint16_t*>(rows.data) + first;
  return rows;
}

}  // namespace

double WalkShape::ProductFlops() const {
  const double c = static_cast<double>(Channels());
  const double h = static_cast<double>(hidden);
  const double mixer = 3 * c * h + (2 * kDim + heads) * h + 2 * c * kDim + h * c;
  return 2.0 * layers * (mixer + 3.0 * h * static_cast<double>(intermediate));
}

double WalkShape::WeightBytes() const {
  return ProductFlops() + 2.0 * static_cast<double>(vocabulary) * static_cast<double>(hidden);
}

LayerWalk::LayerWalk(kernels::Backend* backend, const WalkShape& shape, uint64_t seed)
    : backend_(backend), shape_(shape) {
  rule_.heads = rule_.value_heads = shape.heads;
  rule_.key_dim = rule_.value_dim = static_cast<int>(kDim);
  rule_.gate = shape.gate;
  WeightSource source(backend, seed);
  const int64_t channels = shape.Channels(), hidden = shape.hidden;
  embedding_ = source.Matrix(shape.vocabulary, hidden);
  head_ = source.Matrix(shape.vocabulary, hidden);
  for (int i = 0; i < shape.layers; ++i) {
    Layer layer;
    layer.norms = source.Vector(3 * hidden, 0.1, 1.0);  // mixer, MLP, final
    layer.input = source.Matrix(3 * channels + 2 * kDim + shape.heads, hidden);
    layer.decay = source.Matrix(channels, kDim);
    layer.gate = source.Matrix(channels, kDim);
    layer.output = source.Matrix(hidden, channels);
    layer.gate_up = source.Matrix(2 * shape.intermediate, hidden);
    layer.down = source.Matrix(hidden, shape.intermediate);
    layer.conv = source.Vector(3 * channels * 4, 0.3, 0.0);
    layer.a_log = source.Vector(shape.heads, 0.3, 0.0);
    layer.dt_bias = source.Vector(channels, 0.5, -3.0);
    layer.output_norm = source.Vector(kDim, 0.1, 1.0);
    layers_.push_back(std::move(layer));
  }
}

WalkLane::WalkLane(const LayerWalk* walk, int64_t rows_max)
    : walk_(walk),
      rows_max_((rows_max + 15) / 16 * 16),
      hidden_(walk->backend(), static_cast<size_t>(rows_max_ * walk->shape().hidden) * 2),
      normed_(walk->backend(), static_cast<size_t>(rows_max_ * walk->shape().hidden) * 2),
      scratch_(walk->backend(), static_cast<size_t>(rows_max_ * ScratchWidth(walk->shape())) * 2) {
  Must(walk->backend()->NewOperators(1, &operators_));
}

// One call: rows of one sequence, or one row of each of several.
struct WalkLane::Pass {
  int64_t rows = 0;
  std::vector<int64_t> offsets;
  bool decode = false;
  std::vector<const float*> states_in;  // of whole sequences; nullptr: zero
  std::vector<float*> states_out;
};

kernels::MatMulParams WalkLane::Product(const Pass& pass, const MutableRows& x,
                                        const Weight& weight, const MutableRows& y,
                                        bool accumulate) {
  return {.x = x,
          .weight = &weight,
          .y = y,
          .rows = pass.rows,
          .accumulate = accumulate,
          .step = pass.decode};
}

// What a layer's mixer works in. Once the convolution has read q, k and v, their columns are those
// of what follows.
struct WalkLane::Views {
  MutableRows hidden, normed;
  MutableRows before, after;  // q, k, v
  MutableRows low_rank, decay, gate, o;
};

WalkLane::Views WalkLane::MixerViews() const {
  const WalkShape& shape = walk_->shape();
  const int64_t channels = shape.Channels(), width = InputWidth(shape);
  const MutableRows before = {scratch_.as<void>(), DType::kBF16, width};
  return {.hidden = {hidden_.as<void>(), DType::kBF16, shape.hidden},
          .normed = {normed_.as<void>(), DType::kBF16, shape.hidden},
          .before = before,
          .after = {scratch_.as<uint16_t>() + rows_max_ * width, DType::kBF16, 3 * channels},
          .low_rank = ColumnsFrom(before, 3 * channels),
          .decay = before,
          .gate = ColumnsFrom(before, channels),
          .o = ColumnsFrom(before, 2 * channels)};
}

// Of each sequence, where a layer's state is: the recurrence's, then the tail's.
struct WalkLane::States {
  std::vector<const float*> rule_in, tails_in;
  std::vector<float*> rule_out, tails_out;

  States(const Pass& pass, int layer, int64_t channels) {
    const int64_t at = layer * (channels * kDim + 9 * channels), tail_at = at + channels * kDim;
    for (size_t i = 0; i < pass.states_out.size(); ++i) {
      const float* const in = pass.states_in[i];
      rule_in.push_back(in != nullptr ? in + at : nullptr);
      tails_in.push_back(in != nullptr ? in + tail_at : nullptr);
      rule_out.push_back(pass.states_out[i] + at);
      tails_out.push_back(pass.states_out[i] + tail_at);
    }
  }
};

void WalkLane::Convolve(int layer, const Pass& pass, const Views& views, const States& states) {
  const LayerWalk::Layer& w = walk_->layers_[static_cast<size_t>(layer)];
  const int64_t channels = 3 * walk_->shape().Channels();
  kernels::MatMulShortConvParams inputs = {
      .product = Product(pass, views.normed, *w.input, views.before),
      .conv = {.x = views.before,
               .weight = w.conv->as<float>(),
               .offsets = pass.offsets,
               .tails_in = states.tails_in.data(),
               .y = views.after,
               .channels = channels},
      .kept_ends = std::span(pass.offsets).subspan(1)};
  if (pass.decode) {
    inputs.conv.tails_out = states.tails_out.data();
    return Must(ops().MatMulShortConv(inputs));
  }
  Must(ops().StartMatMulShortConv(inputs));
  Must(ops().FinishMatMulShortConv(inputs));
  Must(ops().ConvTail({.x = views.before,  // one sequence
                       .tokens = pass.rows,
                       .tail_in = states.tails_in[0],
                       .tail_out = states.tails_out[0],
                       .channels = channels}));
}

void WalkLane::RunRule(int layer, const Pass& pass, const Views& views, const States& states) {
  const LayerWalk::Layer& w = walk_->layers_[static_cast<size_t>(layer)];
  const int64_t channels = walk_->shape().Channels();
  const kernels::DeltaRuleInputs in = {.q = views.after,
                                       .k = ColumnsFrom(views.after, channels),
                                       .v = ColumnsFrom(views.after, 2 * channels),
                                       .f = views.decay,
                                       .beta = ColumnsFrom(views.low_rank, 2 * kDim),
                                       .a_log = w.a_log->as<float>(),
                                       .dt_bias = w.dt_bias->as<float>()};
  if (pass.decode) {
    return Must(ops().DeltaRuleStep({.shape = walk_->rule_,
                                     .in = in,
                                     .batch = pass.rows,
                                     .states = states.rule_out.data(),
                                     .o = views.o}));
  }
  Must(ops().DeltaRuleForward({.shape = walk_->rule_,
                               .in = in,
                               .offsets = pass.offsets,
                               .initial_states = states.rule_in.data(),
                               .o = views.o,
                               .final_states = states.rule_out.data()}));
}

void WalkLane::Mix(int layer, const Pass& pass) {
  const LayerWalk::Layer& w = walk_->layers_[static_cast<size_t>(layer)];
  const WalkShape& shape = walk_->shape();
  const Views views = MixerViews();
  const States states(pass, layer, shape.Channels());
  Convolve(layer, pass, views, states);
  const kernels::MatMulParams gates[] = {
      Product(pass, views.low_rank, *w.decay, views.decay),
      Product(pass, ColumnsFrom(views.low_rank, kDim), *w.gate, views.gate)};
  Must(ops().MatMuls(std::span(gates).first(pass.decode ? 2 : 1)));
  RunRule(layer, pass, views, states);
  const kernels::RmsNormParams norm = {.x = views.o,
                                       .weight = w.output_norm->as<float>(),
                                       .gate = views.gate,
                                       .y = views.o,
                                       .rows = pass.rows,
                                       .groups = shape.heads,
                                       .width = kDim};
  if (pass.decode) {
    Must(ops().RmsNorm(norm));
  } else {
    Must(ops().MatMulGatedNorm({.gate = gates[1], .norm = norm}));
  }
  Must(ops().MatMul(Product(pass, views.o, *w.output, views.hidden, true)));
}

void WalkLane::Feed(int layer, const Pass& pass) {
  const LayerWalk::Layer& w = walk_->layers_[static_cast<size_t>(layer)];
  const int64_t inner = walk_->shape().intermediate, hidden = walk_->shape().hidden;
  const MutableRows gate_up = {scratch_.as<void>(), DType::kBF16, 2 * inner};
  const MutableRows product = {scratch_.as<uint16_t>() + rows_max_ * 2 * inner, DType::kBF16,
                               inner};
  const MutableRows normed = {normed_.as<void>(), DType::kBF16, hidden};
  Must(ops().MatMulSwiGlu({.gate_up = Product(pass, normed, *w.gate_up, gate_up), .y = product}));
  Must(ops().MatMul(
      Product(pass, product, *w.down, {hidden_.as<void>(), DType::kBF16, hidden}, true)));
}

void WalkLane::Walk(const Pass& pass, std::span<const uint32_t> tokens) {
  const int64_t hidden = walk_->shape().hidden;
  const MutableRows rows = {hidden_.as<void>(), DType::kBF16, hidden};
  const MutableRows normed = {normed_.as<void>(), DType::kBF16, hidden};
  const auto normalize = [&](const float* weight) {
    Must(ops().RmsNorm(
        {.x = rows, .weight = weight, .y = normed, .rows = pass.rows, .width = hidden}));
  };
  Must(ops().Embedding({walk_->embedding_.get(), tokens, rows}));
  for (int layer = 0; layer < walk_->shape().layers; ++layer) {
    const float* const norms = walk_->layers_[static_cast<size_t>(layer)].norms->as<float>();
    normalize(norms);
    Mix(layer, pass);
    normalize(norms + hidden);
    Feed(layer, pass);
  }
  normalize(walk_->layers_.back().norms->as<float>() + 2 * hidden);
}

void WalkLane::Prefill(std::span<const uint32_t> tokens, const float* state_in, float* state_out) {
  Pass pass;
  pass.rows = static_cast<int64_t>(tokens.size());
  pass.offsets = {0, pass.rows};
  pass.states_in = {state_in};
  pass.states_out = {state_out};
  Walk(pass, tokens);
}

void WalkLane::Decode(std::span<const uint32_t> tokens, std::span<float* const> states) {
  Pass pass;
  pass.decode = true;
  pass.rows = static_cast<int64_t>(tokens.size());
  for (int64_t i = 0; i <= pass.rows; ++i) pass.offsets.push_back(i);
  pass.states_in.assign(states.begin(), states.end());
  pass.states_out.assign(states.begin(), states.end());
  Walk(pass, tokens);
}

void WalkLane::Logits(int64_t rows, bool decode, float* logits) {
  Must(ops().MatMul({.x = {normed_.as<void>(), DType::kBF16, walk_->shape().hidden},
                     .weight = walk_->head_.get(),
                     .y = {logits, DType::kF32, walk_->shape().vocabulary},
                     .rows = rows,
                     .step = decode}));
}

}  // namespace deltafill::test
