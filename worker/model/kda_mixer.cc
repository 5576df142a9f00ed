#include "worker/model/kda_mixer.h"

#include <algorithm>
#include <utility>

#include "worker/model/lane.h"
#include "worker/model/status_steps.h"
#include "worker/model/tensor_names.h"

namespace deltafill::worker {

// Checkpoints of the recurrence fall on the store's boundaries.
static_assert(kernels::kBlockTokens == kBlockTokenCount);
namespace {

using kernels::MutableRows;

// q and k have `heads` heads of `dim`, v has value_heads of value_dim; the decay has value_heads of
// dim. Scratch columns are, with X = q, k and v's channels:
//   [0, P)       pre-convolution rows of q, k, v (X); once the convolution has read them: decay
//                input f, output gate and the rule's output o; P is the larger of the two
//   [P, P + X)   q, k, v after the convolution
//   [P + X, ..)  low-rank inputs of f and of the output gate, and beta
class KdaMixer final : public SequenceMixer {
 public:
  KdaMixer(const ModelConfig& config, const StateLayout& layout, uint32_t layer)
      : layer_(layer),
        family_(config.family),
        hidden_(config.hidden_size),
        value_heads_(config.kda_value_heads),
        value_dim_(config.kda_value_head_dim),
        key_channels_(config.kda_heads * config.kda_head_dim),
        value_channels_(config.kda_value_heads * config.kda_value_head_dim),
        decay_channels_(config.kda_value_heads * config.kda_head_dim),
        rank_(config.kda_value_head_dim),
        eps_(static_cast<float>(config.rms_norm_eps)),
        recurrent_entry_(*layout.Find(layer, PartKind::kRecurrent)),
        tail_entry_(*layout.Find(layer, PartKind::kConvTail)) {
    shape_.heads = static_cast<int>(config.kda_heads);
    shape_.value_heads = static_cast<int>(config.kda_value_heads);
    shape_.key_dim = static_cast<int>(config.kda_head_dim);
    shape_.value_dim = static_cast<int>(config.kda_value_head_dim);
    shape_.gate = config.gate == KdaGate::kSoftplus ? kernels::GateKind::kChannelSoftplus
                                                    : kernels::GateKind::kChannelLowerBound;
    shape_.lower_bound = static_cast<float>(config.gate_lower_bound);
  }

  absl::Status Load(const std::string& prefix, WeightReader& reader);

  int64_t ScratchWidth() const override {
    return FirstWidth() + Channels() + 2 * rank_ + value_heads_;
  }
  absl::Status Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const override;
  absl::Status Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const override;

 private:
  int64_t Channels() const { return 2 * key_channels_ + value_channels_; }
  int64_t FirstWidth() const { return std::max(Channels(), decay_channels_ + 2 * value_channels_); }
  MutableRows PreConvolution(const PassRows& rows) const { return rows.Scratch(0, Channels()); }
  MutableRows Convolved(const PassRows& rows) const {
    return rows.Scratch(FirstWidth(), Channels());
  }
  MutableRows DecayInput(const PassRows& rows) const { return rows.Scratch(0, decay_channels_); }
  MutableRows OutputGate(const PassRows& rows) const {
    return rows.Scratch(decay_channels_, value_channels_);
  }
  MutableRows RuleOutput(const PassRows& rows) const {
    return rows.Scratch(decay_channels_ + value_channels_, value_channels_);
  }
  MutableRows LowRank(const PassRows& rows) const {
    return rows.Scratch(FirstWidth() + Channels(), 2 * rank_ + value_heads_);
  }

  absl::Status LoadProjections(const std::string& prefix, WeightReader& reader);
  kernels::DeltaRuleInputs RuleInputs(const PassRows& rows) const;
  kernels::MatMulParams InputProduct(const PassRows& rows) const;
  kernels::MatMulParams LowRankProduct(const PassRows& rows) const;
  absl::Status HandOnTails(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status CaptureTails(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status WriteTail(const PassRows& rows, size_t range, int64_t tokens, const float* tail_in,
                         void* tail_out) const;
  absl::Status ProjectGates(const PassRows& rows) const;
  absl::Status RunRule(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status ProjectOutput(const PassRows& rows) const;

  const uint32_t layer_;
  const ModelFamily family_;
  const int64_t hidden_;
  const int64_t value_heads_;
  const int64_t value_dim_;
  const int64_t key_channels_;
  const int64_t value_channels_;
  const int64_t decay_channels_;
  const int64_t rank_;  // of the decay and of the output gate
  const float eps_;
  const StateEntry recurrent_entry_;
  const StateEntry tail_entry_;
  kernels::DeltaRuleShape shape_;
  std::unique_ptr<kernels::Weight> qkv_;       // [channels of q, k, v; hidden]
  std::unique_ptr<kernels::Weight> low_rank_;  // [2 rank + value heads, hidden]: decay, gate, beta
  std::unique_ptr<kernels::Weight> decay_;     // [decay channels, rank]
  std::unique_ptr<kernels::Weight> gate_;      // [value channels, rank]
  std::unique_ptr<kernels::Weight> output_;    // [hidden, value channels]
  DeviceBuffer conv_;                          // [channels of q, k, v; 4]
  DeviceBuffer gate_bias_;                     // [value channels]; empty: there is none
  DeviceBuffer a_log_;                         // [value heads]
  DeviceBuffer dt_bias_;                       // [decay channels]
  DeviceBuffer output_norm_;                   // [value dim]
};

absl::Status KdaMixer::Load(const std::string& prefix, WeightReader& reader) {
  DELTAFILL_TRY(LoadProjections(prefix, reader));
  const int64_t taps = kernels::kConvKernelSize;
  DELTAFILL_TRY_ASSIGN(conv,
                       reader.Vector({{prefix + "q_conv1d.weight", {key_channels_, taps}},
                                      {prefix + "k_conv1d.weight", {key_channels_, taps}},
                                      {prefix + "v_conv1d.weight", {value_channels_, taps}}}));
  conv_ = std::move(conv);
  DELTAFILL_TRY_ASSIGN(a_log, reader.Vector({{prefix + "A_log", {value_heads_}}}));
  a_log_ = std::move(a_log);
  DELTAFILL_TRY_ASSIGN(dt_bias, reader.Vector({{prefix + "dt_bias", {decay_channels_}}}));
  dt_bias_ = std::move(dt_bias);
  DELTAFILL_TRY_ASSIGN(output_norm, reader.Vector({{prefix + "o_norm.weight", {value_dim_}}}));
  output_norm_ = std::move(output_norm);
  if (const char* bias_name = NamesOf(family_).gate_bias; bias_name != nullptr) {
    DELTAFILL_TRY_ASSIGN(gate_bias, reader.Vector({{prefix + bias_name, {value_channels_}}}));
    gate_bias_ = std::move(gate_bias);
  }
  return absl::OkStatus();
}

absl::Status KdaMixer::LoadProjections(const std::string& prefix, WeightReader& reader) {
  const TensorNames& names = NamesOf(family_);
  DELTAFILL_TRY_ASSIGN(qkv, reader.Matrix({{prefix + "q_proj.weight", key_channels_},
                                           {prefix + "k_proj.weight", key_channels_},
                                           {prefix + "v_proj.weight", value_channels_}},
                                          hidden_));
  qkv_ = std::move(qkv);
  DELTAFILL_TRY_ASSIGN(low_rank, reader.Matrix({{prefix + names.decay_down, rank_},
                                                {prefix + names.gate_down, rank_},
                                                {prefix + "b_proj.weight", value_heads_}},
                                               hidden_));
  low_rank_ = std::move(low_rank);
  DELTAFILL_TRY_ASSIGN(decay, reader.Matrix({{prefix + names.decay_up, decay_channels_}}, rank_));
  decay_ = std::move(decay);
  DELTAFILL_TRY_ASSIGN(gate, reader.Matrix({{prefix + names.gate_up, value_channels_}}, rank_));
  gate_ = std::move(gate);
  DELTAFILL_TRY_ASSIGN(output,
                       reader.Matrix({{prefix + "o_proj.weight", hidden_}}, value_channels_));
  output_ = std::move(output);
  return absl::OkStatus();
}

kernels::DeltaRuleInputs KdaMixer::RuleInputs(const PassRows& rows) const {
  const MutableRows convolved = Convolved(rows);
  return {.q = convolved,
          .k = ColumnsFrom(convolved, key_channels_),
          .v = ColumnsFrom(convolved, 2 * key_channels_),
          .f = DecayInput(rows),
          .beta = ColumnsFrom(LowRank(rows), 2 * rank_),
          .a_log = a_log_.floats(),
          .dt_bias = dt_bias_.floats()};
}

kernels::MatMulParams KdaMixer::InputProduct(const PassRows& rows) const {
  return {.x = rows.normed,
          .weight = qkv_.get(),
          .y = PreConvolution(rows),
          .rows = rows.rows,
          .step = rows.step};
}

kernels::MatMulParams KdaMixer::LowRankProduct(const PassRows& rows) const {
  return {.x = rows.normed,
          .weight = low_rank_.get(),
          .y = LowRank(rows),
          .rows = rows.rows,
          .step = rows.step};
}

absl::Status KdaMixer::WriteTail(const PassRows& rows, size_t range, int64_t tokens,
                                 const float* tail_in, void* tail_out) const {
  return FromOperator(
      rows.operators->ConvTail({.x = RowsFrom(PreConvolution(rows), rows.offsets[range]),
                                .tokens = tokens,
                                .tail_in = tail_in,
                                .tail_out = static_cast<float*>(tail_out),
                                .channels = Channels()}));
}

// Fills pointers->tails_in. A range of three tokens or more does not need the tail before it to
// hand its own on, so it does that first and the next worker need not wait for this one's wait.
absl::Status KdaMixer::HandOnTails(const PassRows& rows, std::span<const RangeWork> ranges) const {
  std::vector<const float*>& tails_in = rows.pointers->tails_in;
  tails_in.assign(ranges.size(), nullptr);
  for (const bool waits : {false, true}) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      const int64_t tokens = static_cast<int64_t>(ranges[i].tokens.size());
      const bool needs_tail = tokens < kernels::kConvTailRows;
      if (waits) {
        DELTAFILL_TRY_ASSIGN(tail, ranges[i].port->Await(layer_, PartKind::kConvTail));
        tails_in[i] = static_cast<const float*>(tail);
      }
      if (needs_tail != waits) continue;
      void* const outgoing = ranges[i].port->Outgoing(layer_, PartKind::kConvTail);
      if (outgoing == nullptr) continue;
      DELTAFILL_TRY(WriteTail(rows, i, tokens, tails_in[i], outgoing));
      DELTAFILL_TRY(ranges[i].port->HandOn(layer_, PartKind::kConvTail));
    }
  }
  return absl::OkStatus();
}

absl::Status KdaMixer::CaptureTails(const PassRows& rows, std::span<const RangeWork> ranges) const {
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t capture = 0; capture < ranges[i].captures.size(); ++capture) {
      void* const out =
          ranges[i].port->Capture(static_cast<int>(capture), layer_, PartKind::kConvTail);
      // A capture is at least a block from the start: no row of it comes from before the range.
      DELTAFILL_TRY(WriteTail(rows, i, ranges[i].captures[capture], nullptr, out));
    }
  }
  return absl::OkStatus();
}

// After the convolution: f and the output gate take the place of the rows it has read.
absl::Status KdaMixer::ProjectGates(const PassRows& rows) const {
  const MutableRows low_rank = LowRank(rows);
  const kernels::MatMulParams gates[] = {{.x = low_rank,
                                          .weight = decay_.get(),
                                          .y = DecayInput(rows),
                                          .rows = rows.rows,
                                          .step = rows.step},
                                         {.x = ColumnsFrom(low_rank, rank_),
                                          .weight = gate_.get(),
                                          .bias = gate_bias_.floats(),
                                          .y = OutputGate(rows),
                                          .rows = rows.rows,
                                          .step = rows.step}};
  return FromOperator(rows.operators->MatMuls(gates));
}

absl::Status KdaMixer::RunRule(const PassRows& rows, std::span<const RangeWork> ranges) const {
  PassPointers& pointers = *rows.pointers;
  pointers.states_in.clear();
  pointers.states.clear();
  pointers.checkpoints.clear();
  for (size_t i = 0; i < ranges.size(); ++i) {
    BoundaryPort& port = *ranges[i].port;
    DELTAFILL_TRY_ASSIGN(state, port.Await(layer_, PartKind::kRecurrent));
    pointers.states_in.push_back(static_cast<const float*>(state));
    pointers.states.push_back(static_cast<float*>(port.Outgoing(layer_, PartKind::kRecurrent)));
    for (size_t capture = 0; capture < ranges[i].captures.size(); ++capture) {
      pointers.checkpoints.push_back(
          {.sequence = static_cast<int>(i),
           .tokens = ranges[i].captures[capture],
           .state = static_cast<float*>(
               port.Capture(static_cast<int>(capture), layer_, PartKind::kRecurrent))});
    }
  }
  DELTAFILL_TRY(rows.operators->DeltaRuleForward({.shape = shape_,
                                                  .in = RuleInputs(rows),
                                                  .offsets = rows.offsets,
                                                  .initial_states = pointers.states_in.data(),
                                                  .o = RuleOutput(rows),
                                                  .final_states = pointers.states.data(),
                                                  .checkpoints = pointers.checkpoints}));
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (pointers.states[i] == nullptr) continue;
    DELTAFILL_TRY(ranges[i].port->HandOn(layer_, PartKind::kRecurrent));
  }
  return absl::OkStatus();
}

absl::Status KdaMixer::ProjectOutput(const PassRows& rows) const {
  const MutableRows out = RuleOutput(rows);
  DELTAFILL_TRY(rows.operators->RmsNorm({.x = out,
                                         .weight = output_norm_.floats(),
                                         .gate = OutputGate(rows),
                                         .y = out,
                                         .rows = rows.rows,
                                         .groups = value_heads_,
                                         .width = value_dim_,
                                         .eps = eps_}));
  return FromOperator(rows.operators->MatMul({.x = out,
                                              .weight = output_.get(),
                                              .y = rows.hidden,
                                              .rows = rows.rows,
                                              .accumulate = true,
                                              .step = rows.step}));
}

absl::Status KdaMixer::Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const {
  DELTAFILL_TRY(rows.operators->MatMul(InputProduct(rows)));
  DELTAFILL_TRY(HandOnTails(rows, ranges));
  DELTAFILL_TRY(CaptureTails(rows, ranges));
  DELTAFILL_TRY(rows.operators->ShortConv({.x = PreConvolution(rows),
                                           .weight = conv_.floats(),
                                           .offsets = rows.offsets,
                                           .tails_in = rows.pointers->tails_in.data(),
                                           .y = Convolved(rows),
                                           .channels = Channels()}));
  DELTAFILL_TRY(rows.operators->MatMul(LowRankProduct(rows)));
  DELTAFILL_TRY(ProjectGates(rows));
  DELTAFILL_TRY(RunRule(rows, ranges));
  return ProjectOutput(rows);
}

absl::Status KdaMixer::Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const {
  PassPointers& pointers = *rows.pointers;
  pointers.tails.clear();
  pointers.states.clear();
  for (const DecodeRow& sequence : sequences) {
    std::byte* const start = static_cast<std::byte*>(sequence.state);
    pointers.tails.push_back(reinterpret_cast<float*>(start + tail_entry_.offset));
    pointers.states.push_back(reinterpret_cast<float*>(start + recurrent_entry_.offset));
  }
  const kernels::MatMulParams inputs[] = {InputProduct(rows), LowRankProduct(rows)};
  DELTAFILL_TRY(rows.operators->MatMuls(inputs));
  DELTAFILL_TRY(rows.operators->ShortConv({.x = PreConvolution(rows),
                                           .weight = conv_.floats(),
                                           .offsets = rows.offsets,
                                           .tails_in = pointers.tails.data(),
                                           .tails_out = pointers.tails.data(),
                                           .y = Convolved(rows),
                                           .channels = Channels()}));
  DELTAFILL_TRY(ProjectGates(rows));
  DELTAFILL_TRY(rows.operators->DeltaRuleStep({.shape = shape_,
                                               .in = RuleInputs(rows),
                                               .batch = rows.rows,
                                               .states = pointers.states.data(),
                                               .o = RuleOutput(rows)}));
  return ProjectOutput(rows);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadKdaMixer(const ModelConfig& config,
                                                            const StateLayout& layout,
                                                            uint32_t layer,
                                                            const std::string& prefix,
                                                            WeightReader& reader) {
  auto mixer = std::make_unique<KdaMixer>(config, layout, layer);
  DELTAFILL_TRY(mixer->Load(prefix, reader));
  return mixer;
}

}  // namespace deltafill::worker
