#include "worker/model/kda_mixer.h"

#include "absl/strings/str_cat.h"
#include "worker/model/lane.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

// Checkpoints of the recurrence fall on the store's boundaries.
static_assert(kernels::kBlockTokens == kBlockTokenCount);
namespace {

using kernels::MutableRows;

// With C = heads x head_dim and D = head_dim, scratch columns are:
//   [0, 3C)   pre-convolution rows of q, k, v; once the convolution has read them: decay input f,
//             output gate and the rule's output o, C each
//   [3C, 6C)  q, k, v after the convolution
//   [6C, ..)  low-rank inputs of f and of the output gate, D each, and beta
class KdaMixer final : public SequenceMixer {
 public:
  KdaMixer(const ModelConfig& config, const StateLayout& layout, uint32_t layer)
      : layer_(layer),
        hidden_(config.hidden_size),
        heads_(config.kda_heads),
        dim_(config.kda_head_dim),
        channels_(config.kda_heads * config.kda_head_dim),
        eps_(static_cast<float>(config.rms_norm_eps)),
        recurrent_entry_(*layout.Find(layer, PartKind::kRecurrent)),
        tail_entry_(*layout.Find(layer, PartKind::kConvTail)) {
    shape_.heads = static_cast<int>(heads_);
    shape_.value_heads = static_cast<int>(heads_);
    shape_.key_dim = static_cast<int>(dim_);
    shape_.value_dim = static_cast<int>(dim_);
    shape_.gate = config.gate == KdaGate::kSoftplus ? kernels::GateKind::kChannelSoftplus
                                                    : kernels::GateKind::kChannelLowerBound;
    shape_.lower_bound = static_cast<float>(config.gate_lower_bound);
  }

  absl::Status Load(const std::string& prefix, WeightReader& reader);

  int64_t ScratchWidth() const override { return 6 * channels_ + 2 * dim_ + heads_; }
  absl::Status Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const override;
  absl::Status Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const override;

 private:
  MutableRows PreConvolution(const PassRows& rows) const { return rows.Scratch(0, 3 * channels_); }
  MutableRows Convolved(const PassRows& rows) const {
    return rows.Scratch(3 * channels_, 3 * channels_);
  }
  MutableRows DecayInput(const PassRows& rows) const { return rows.Scratch(0, channels_); }
  MutableRows OutputGate(const PassRows& rows) const { return rows.Scratch(channels_, channels_); }
  MutableRows RuleOutput(const PassRows& rows) const {
    return rows.Scratch(2 * channels_, channels_);
  }
  MutableRows LowRank(const PassRows& rows) const {
    return rows.Scratch(6 * channels_, 2 * dim_ + heads_);
  }

  kernels::DeltaRuleInputs RuleInputs(const PassRows& rows) const;
  absl::Status ProjectInputs(const PassRows& rows) const;
  absl::Status HandOnTails(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status CaptureTails(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status WriteTail(const PassRows& rows, size_t range, int64_t tokens, const float* tail_in,
                         void* tail_out) const;
  absl::Status ProjectGates(const PassRows& rows) const;
  absl::Status RunRule(const PassRows& rows, std::span<const RangeWork> ranges) const;
  absl::Status ProjectOutput(const PassRows& rows) const;

  const uint32_t layer_;
  const int64_t hidden_;
  const int64_t heads_;
  const int64_t dim_;
  const int64_t channels_;
  const float eps_;
  const StateEntry recurrent_entry_;
  const StateEntry tail_entry_;
  kernels::DeltaRuleShape shape_;
  std::unique_ptr<kernels::Weight> qkv_;       // [3C, hidden]
  std::unique_ptr<kernels::Weight> low_rank_;  // [2D + heads, hidden]: f_a, g_a, beta
  std::unique_ptr<kernels::Weight> decay_;     // [C, D]: f_b
  std::unique_ptr<kernels::Weight> gate_;      // [C, D]: g_b
  std::unique_ptr<kernels::Weight> output_;    // [hidden, C]
  DeviceBuffer conv_;                          // [3C, 4]
  DeviceBuffer a_log_;                         // [heads]
  DeviceBuffer dt_bias_;                       // [C]
  DeviceBuffer output_norm_;                   // [D]
};

absl::Status KdaMixer::Load(const std::string& prefix, WeightReader& reader) {
  const auto named = [&prefix](const char* name) { return absl::StrCat(prefix, name, ".weight"); };
  DELTAFILL_TRY_ASSIGN(qkv, reader.Matrix({{named("q_proj"), channels_},
                                           {named("k_proj"), channels_},
                                           {named("v_proj"), channels_}},
                                          hidden_));
  qkv_ = std::move(qkv);
  DELTAFILL_TRY_ASSIGN(low_rank, reader.Matrix({{named("f_a_proj"), dim_},
                                                {named("g_a_proj"), dim_},
                                                {named("b_proj"), heads_}},
                                               hidden_));
  low_rank_ = std::move(low_rank);
  DELTAFILL_TRY_ASSIGN(decay, reader.Matrix({{named("f_b_proj"), channels_}}, dim_));
  decay_ = std::move(decay);
  DELTAFILL_TRY_ASSIGN(gate, reader.Matrix({{named("g_b_proj"), channels_}}, dim_));
  gate_ = std::move(gate);
  DELTAFILL_TRY_ASSIGN(output, reader.Matrix({{named("o_proj"), hidden_}}, channels_));
  output_ = std::move(output);
  DELTAFILL_TRY_ASSIGN(conv,
                       reader.Vector({named("q_conv1d"), named("k_conv1d"), named("v_conv1d")},
                                     {channels_, kernels::kConvKernelSize}));
  conv_ = std::move(conv);
  DELTAFILL_TRY_ASSIGN(a_log, reader.Vector({prefix + "A_log"}, {heads_}));
  a_log_ = std::move(a_log);
  DELTAFILL_TRY_ASSIGN(dt_bias, reader.Vector({prefix + "dt_bias"}, {channels_}));
  dt_bias_ = std::move(dt_bias);
  DELTAFILL_TRY_ASSIGN(output_norm, reader.Vector({named("o_norm")}, {dim_}));
  output_norm_ = std::move(output_norm);
  return absl::OkStatus();
}

kernels::DeltaRuleInputs KdaMixer::RuleInputs(const PassRows& rows) const {
  const MutableRows convolved = Convolved(rows);
  return {.q = convolved,
          .k = ColumnsFrom(convolved, channels_),
          .v = ColumnsFrom(convolved, 2 * channels_),
          .f = DecayInput(rows),
          .beta = ColumnsFrom(LowRank(rows), 2 * dim_),
          .a_log = a_log_.floats(),
          .dt_bias = dt_bias_.floats()};
}

absl::Status KdaMixer::ProjectInputs(const PassRows& rows) const {
  return FromOperator(rows.operators->MatMul({.x = rows.normed,
                                              .weight = qkv_.get(),
                                              .y = PreConvolution(rows),
                                              .rows = rows.rows,
                                              .step = rows.step}));
}

absl::Status KdaMixer::WriteTail(const PassRows& rows, size_t range, int64_t tokens,
                                 const float* tail_in, void* tail_out) const {
  return FromOperator(
      rows.operators->ConvTail({.x = RowsFrom(PreConvolution(rows), rows.offsets[range]),
                                .tokens = tokens,
                                .tail_in = tail_in,
                                .tail_out = static_cast<float*>(tail_out),
                                .channels = 3 * channels_}));
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
  DELTAFILL_TRY(rows.operators->MatMul({.x = rows.normed,
                                        .weight = low_rank_.get(),
                                        .y = low_rank,
                                        .rows = rows.rows,
                                        .step = rows.step}));
  DELTAFILL_TRY(rows.operators->MatMul({.x = low_rank,
                                        .weight = decay_.get(),
                                        .y = DecayInput(rows),
                                        .rows = rows.rows,
                                        .step = rows.step}));
  return FromOperator(rows.operators->MatMul({.x = ColumnsFrom(low_rank, dim_),
                                              .weight = gate_.get(),
                                              .y = OutputGate(rows),
                                              .rows = rows.rows,
                                              .step = rows.step}));
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
                                         .groups = heads_,
                                         .width = dim_,
                                         .eps = eps_}));
  return FromOperator(rows.operators->MatMul({.x = out,
                                              .weight = output_.get(),
                                              .y = rows.hidden,
                                              .rows = rows.rows,
                                              .accumulate = true,
                                              .step = rows.step}));
}

absl::Status KdaMixer::Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const {
  DELTAFILL_TRY(ProjectInputs(rows));
  DELTAFILL_TRY(HandOnTails(rows, ranges));
  DELTAFILL_TRY(CaptureTails(rows, ranges));
  DELTAFILL_TRY(rows.operators->ShortConv({.x = PreConvolution(rows),
                                           .weight = conv_.floats(),
                                           .offsets = rows.offsets,
                                           .tails_in = rows.pointers->tails_in.data(),
                                           .y = Convolved(rows),
                                           .channels = 3 * channels_}));
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
  DELTAFILL_TRY(ProjectInputs(rows));
  DELTAFILL_TRY(rows.operators->ShortConv({.x = PreConvolution(rows),
                                           .weight = conv_.floats(),
                                           .offsets = rows.offsets,
                                           .tails_in = pointers.tails.data(),
                                           .tails_out = pointers.tails.data(),
                                           .y = Convolved(rows),
                                           .channels = 3 * channels_}));
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
