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
// dim. Scratch is, with X = q, k and v's channels:
//   rows of X + 2 rank + value_heads (rounded up to 8) columns: pre-convolution rows of q, k and v,
//     then low-rank inputs of the decay and of the output gate, and beta: one product. Once the
//     convolution has read the X columns, they are those of decay input f, output gate and the
//     rule's output o
//   rows of X: q, k, v after the convolution
//   rows of f, output gate and o where X columns are too few for them
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
    return InputWidth() + Channels() + (GatesFit() ? 0 : GatesWidth());
  }
  absl::Status Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const override;
  absl::Status Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const override;

 private:
  int64_t Channels() const { return 2 * key_channels_ + value_channels_; }
  int64_t InputWidth() const { return (Channels() + 2 * rank_ + value_heads_ + 7) / 8 * 8; }
  int64_t GatesWidth() const { return decay_channels_ + 2 * value_channels_; }
  bool GatesFit() const { return GatesWidth() <= Channels(); }
  // The columns of the input product; the first X hold the pre-convolution rows.
  MutableRows Inputs(const PassRows& rows) const { return rows.Scratch(0, InputWidth()); }
  MutableRows Convolved(const PassRows& rows) const {
    return rows.Scratch(InputWidth(), Channels());
  }
  MutableRows LowRank(const PassRows& rows) const { return ColumnsFrom(Inputs(rows), Channels()); }
  MutableRows DecayInput(const PassRows& rows) const {
    return GatesFit() ? Inputs(rows) : rows.Scratch(InputWidth() + Channels(), GatesWidth());
  }
  MutableRows OutputGate(const PassRows& rows) const {
    return ColumnsFrom(DecayInput(rows), decay_channels_);
  }
  MutableRows RuleOutput(const PassRows& rows) const {
    return ColumnsFrom(DecayInput(rows), decay_channels_ + value_channels_);
  }

  absl::Status LoadProjections(const std::string& prefix, WeightReader& reader);
  kernels::DeltaRuleInputs RuleInputs(const PassRows& rows) const;
  kernels::MatMulParams InputProduct(const PassRows& rows) const;
  absl::Status HandOnTails(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status CaptureTails(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status WriteTail(const PassRows& rows, size_t range, int64_t tokens, const float* tail_in,
                         void* tail_out) const;
  kernels::MatMulParams DecayProduct(const PassRows& rows) const;
  kernels::MatMulParams GateProduct(const PassRows& rows) const;
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
  // [channels of q, k, v; rank of the decay, of the gate; value heads: beta][hidden]
  std::unique_ptr<kernels::Weight> input_;
  std::unique_ptr<kernels::Weight> decay_;   // [decay channels, rank]
  std::unique_ptr<kernels::Weight> gate_;    // [value channels, rank]
  std::unique_ptr<kernels::Weight> output_;  // [hidden, value channels]
  DeviceBuffer conv_;                        // [channels of q, k, v; 4]
  DeviceBuffer gate_bias_;                   // [value channels]; empty: there is none
  DeviceBuffer a_log_;                       // [value heads]
  DeviceBuffer dt_bias_;                     // [decay channels]
  DeviceBuffer output_norm_;                 // [value dim]
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
  DELTAFILL_TRY_ASSIGN(input, reader.Matrix({{prefix + "q_proj.weight", key_channels_},
                                             {prefix + "k_proj.weight", key_channels_},
                                             {prefix + "v_proj.weight", value_channels_},
                                             {prefix + names.decay_down, rank_},
                                             {prefix + names.gate_down, rank_},
                                             {prefix + "b_proj.weight", value_heads_}},
                                            hidden_));
  input_ = std::move(input);
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
          .weight = input_.get(),
          .y = Inputs(rows),
          .rows = rows.rows,
          .step = rows.step};
}

absl::Status KdaMixer::WriteTail(const PassRows& rows, size_t range, int64_t tokens,
                                 const float* tail_in, void* tail_out) const {
  return FromOperator(rows.operators->ConvTail({.x = RowsFrom(Inputs(rows), rows.offsets[range]),
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
kernels::MatMulParams KdaMixer::DecayProduct(const PassRows& rows) const {
  return {.x = LowRank(rows),
          .weight = decay_.get(),
          .y = DecayInput(rows),
          .rows = rows.rows,
          .step = rows.step};
}

kernels::MatMulParams KdaMixer::GateProduct(const PassRows& rows) const {
  return {.x = ColumnsFrom(LowRank(rows), rank_),
          .weight = gate_.get(),
          .bias = gate_bias_.floats(),
          .y = OutputGate(rows),
          .rows = rows.rows,
          .step = rows.step};
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
  const kernels::RmsNormParams norm = {.x = out,
                                       .weight = output_norm_.floats(),
                                       .gate = OutputGate(rows),
                                       .y = out,
                                       .rows = rows.rows,
                                       .groups = value_heads_,
                                       .width = value_dim_,
                                       .eps = eps_};
  // A step has made its gates together with its decays.
  DELTAFILL_TRY(rows.step
                    ? rows.operators->RmsNorm(norm)
                    : rows.operators->MatMulGatedNorm({.gate = GateProduct(rows), .norm = norm}));
  return FromOperator(rows.operators->MatMul({.x = out,
                                              .weight = output_.get(),
                                              .y = rows.hidden,
                                              .rows = rows.rows,
                                              .accumulate = true,
                                              .step = rows.step}));
}

absl::Status KdaMixer::Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const {
  PassPointers& pointers = *rows.pointers;
  pointers.tail_ends.clear();  // what HandOnTails and CaptureTails read
  for (size_t i = 0; i < ranges.size(); ++i) {
    pointers.tail_ends.push_back(rows.offsets[i + 1]);
    for (const int64_t capture : ranges[i].captures) {
      pointers.tail_ends.push_back(rows.offsets[i] + capture);
    }
  }
  kernels::MatMulShortConvParams inputs = {.product = InputProduct(rows),
                                           .conv = {.x = Inputs(rows),
                                                    .weight = conv_.floats(),
                                                    .offsets = rows.offsets,
                                                    .y = Convolved(rows),
                                                    .channels = Channels()},
                                           .kept_ends = pointers.tail_ends};
  DELTAFILL_TRY(rows.operators->StartMatMulShortConv(inputs));
  DELTAFILL_TRY(HandOnTails(rows, ranges));
  DELTAFILL_TRY(CaptureTails(rows, ranges));
  inputs.conv.tails_in = pointers.tails_in.data();
  DELTAFILL_TRY(rows.operators->FinishMatMulShortConv(inputs));
  DELTAFILL_TRY(rows.operators->MatMul(DecayProduct(rows)));
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
  DELTAFILL_TRY(rows.operators->MatMulShortConv({.product = InputProduct(rows),
                                                 .conv = {.x = Inputs(rows),
                                                          .weight = conv_.floats(),
                                                          .offsets = rows.offsets,
                                                          .tails_in = pointers.tails.data(),
                                                          .tails_out = pointers.tails.data(),
                                                          .y = Convolved(rows),
                                                          .channels = Channels()}}));
  const kernels::MatMulParams gates[] = {DecayProduct(rows), GateProduct(rows)};
  DELTAFILL_TRY(rows.operators->MatMuls(gates));
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
