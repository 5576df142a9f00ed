// A stack of KDA and SwiGLU layers with random weights, walked through the operator interface as
// the worker's model does: what a whole model's bits and speed are, without a checkpoint.
#ifndef DELTAFILL_TESTS_GPU_LAYER_WALK_H_
#define DELTAFILL_TESTS_GPU_LAYER_WALK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/gpu/backend_fixture.h"

namespace deltafill::test {

struct WalkShape {
  int layers = 0;
  int heads = 0;  // of 128 channels
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t vocabulary = 0;
  kernels::GateKind gate = kernels::GateKind::kChannelLowerBound;

  int64_t Channels() const { return int64_t{heads} * 128; }
  // Multiplications and additions of matrix products a token, the logits left out.
  double ProductFlops() const;
  double WeightBytes() const;  // of the layers and the output head
  int64_t StateFloats() const { return layers * (Channels() * 128 + 3 * Channels() * 3); }
};

class LayerWalk;

// What one lane walks with. The walk outlives it.
class WalkLane {
 public:
  WalkLane(const LayerWalk* walk, int64_t rows_max);

  // Rows of one sequence, which continues from `state_in` (device memory, StateFloats(); nullptr:
  // from zero) and leaves its state in `state_out`.
  void Prefill(std::span<const uint32_t> tokens, const float* state_in, float* state_out);
  // One row a sequence; states are updated in place.
  void Decode(std::span<const uint32_t> tokens, std::span<float* const> states);
  // Of the first `rows` normalised rows of the last call, to f32 [rows, vocabulary] on the device.
  void Logits(int64_t rows, bool decode, float* logits);

  // [rows, hidden] of the last call, bf16.
  const BackendBuffer& hidden() const { return hidden_; }
  kernels::Operators& operators() { return *operators_; }
  // Every call then goes through `operators`, which outlives the lane.
  void Redirect(kernels::Operators* operators) { redirected_ = operators; }

 private:
  struct Pass;
  struct Views;
  struct States;
  Views MixerViews() const;
  void Convolve(int layer, const Pass& pass, const Views& views, const States& states);
  void RunRule(int layer, const Pass& pass, const Views& views, const States& states);
  void Mix(int layer, const Pass& pass);
  void Feed(int layer, const Pass& pass);
  static kernels::MatMulParams Product(const Pass& pass, const kernels::MutableRows& x,
                                       const kernels::Weight& weight, const kernels::MutableRows& y,
                                       bool accumulate = false);
  kernels::Operators& ops() { return redirected_ != nullptr ? *redirected_ : *operators_; }
  void Walk(const Pass& pass, std::span<const uint32_t> tokens);

  const LayerWalk* const walk_;
  const int64_t rows_max_;
  std::unique_ptr<kernels::Operators> operators_;
  kernels::Operators* redirected_ = nullptr;
  BackendBuffer hidden_, normed_, scratch_;
};

// Weights and memory are made at once. Immutable, shared by lanes.
class LayerWalk {
 public:
  LayerWalk(kernels::Backend* backend, const WalkShape& shape, uint64_t seed);

  const WalkShape& shape() const { return shape_; }
  kernels::Backend* backend() const { return backend_; }

 private:
  friend class WalkLane;
  struct Layer {
    std::unique_ptr<kernels::Weight> input, decay, gate, output, gate_up, down;
    std::unique_ptr<BackendBuffer> norms, conv, a_log, dt_bias, output_norm;  // f32
  };

  kernels::Backend* const backend_;
  const WalkShape shape_;
  kernels::DeltaRuleShape rule_;
  std::unique_ptr<kernels::Weight> embedding_, head_;
  std::vector<Layer> layers_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_GPU_LAYER_WALK_H_
