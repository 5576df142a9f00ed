#include "worker/model/hybrid_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

HybridModel::HybridModel(ModelConfig config, std::shared_ptr<kernels::Backend> backend)
    : backend_(std::move(backend)),
      config_(std::move(config)),
      layout_(MakeStateLayout(
          config_, backend_ != nullptr ? backend_->activation_dtype() : kernels::DType::kF32)) {}

LaneSizes HybridModel::LaneSizesOf(int64_t rows_max) const {
  int64_t scratch_width = 0;
  for (const Layer& layer : layers_) {
    scratch_width =
        std::max({scratch_width, layer.mixer->ScratchWidth(), layer.mlp->ScratchWidth()});
  }
  return {.rows_max = rows_max,
          .hidden = config_.hidden_size,
          .scratch_width = scratch_width,
          .vocabulary = config_.vocab_size};
}

absl::StatusOr<std::shared_ptr<Lane>> HybridModel::NewLane(int threads, int64_t rows_max) {
  return Lane::Create(*backend_, threads, LaneSizesOf(rows_max));
}

absl::Status HybridModel::CheckToken(uint32_t token) const {
  if (token < config_.vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("token id ", token, " is not below the vocabulary's ", config_.vocab_size));
}

absl::Status HybridModel::CheckRanges(const Lane& lane, std::span<const RangeWork> ranges) const {
  if (ranges.empty()) return absl::InvalidArgumentError("ranges: there are none");
  int64_t rows = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::string range = absl::StrCat("ranges[", i, "].");
    const int64_t tokens = static_cast<int64_t>(ranges[i].tokens.size());
    if (tokens < 1) return absl::InvalidArgumentError(range + "tokens: there are none");
    if (ranges[i].port == nullptr) return absl::InvalidArgumentError(range + "port: is null");
    for (uint32_t token : ranges[i].tokens) DELTAFILL_TRY(CheckToken(token));
    int64_t before = 0;
    for (int64_t capture : ranges[i].captures) {
      if (capture % kernels::kBlockTokens != 0 || capture <= before || capture > tokens) {
        return absl::InvalidArgumentError(
            absl::StrCat(range, "captures: ", capture, " is not a multiple of ",
                         kernels::kBlockTokens, " in (", before, ", ", tokens, "]"));
      }
      before = capture;
    }
    rows += tokens;
  }
  if (rows > lane.sizes().rows_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranges: ", rows, " tokens are over the lane's ", lane.sizes().rows_max));
  }
  return absl::OkStatus();
}

absl::Status HybridModel::Embed(Lane& lane, const PassRows& rows) const {
  return FromOperator(rows.operators->Embedding(
      {.table = embedding_.get(), .tokens = lane.tokens, .y = rows.hidden}));
}

absl::Status HybridModel::Normalize(const PassRows& rows, const DeviceBuffer& weight,
                                    int64_t first_in, int64_t first_out, int64_t count) const {
  return FromOperator(rows.operators->RmsNorm({.x = RowsFrom(rows.hidden, first_in),
                                               .weight = weight.floats(),
                                               .y = RowsFrom(rows.normed, first_out),
                                               .rows = count,
                                               .width = config_.hidden_size,
                                               .eps = static_cast<float>(config_.rms_norm_eps)}));
}

absl::Status HybridModel::Prefill(Lane& lane, std::span<const RangeWork> ranges) {
  lane.last_rows = 0;
  lane.steps().Forget();
  DELTAFILL_TRY(CheckRanges(lane, ranges));
  lane.offsets.assign(1, 0);
  lane.tokens.clear();
  for (const RangeWork& range : ranges) {
    lane.tokens.insert(lane.tokens.end(), range.tokens.begin(), range.tokens.end());
    lane.offsets.push_back(static_cast<int64_t>(lane.tokens.size()));
  }
  const PassRows rows = lane.Rows(lane.offsets);
  DELTAFILL_TRY(Embed(lane, rows));
  for (uint32_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    DELTAFILL_TRY(Normalize(rows, layer.mixer_norm, 0, 0, rows.rows));
    DELTAFILL_TRY(layer.mixer->Prefill(rows, ranges));
    DELTAFILL_TRY(Normalize(rows, layer.mlp_norm, 0, 0, rows.rows));
    DELTAFILL_TRY(layer.mlp->Forward(rows));
    for (const RangeWork& range : ranges) DELTAFILL_TRY(range.port->TaskDone(index));
  }
  // Only the last tokens' rows are needed from here on.
  for (size_t i = 0; i < ranges.size(); ++i) {
    DELTAFILL_TRY(
        Normalize(rows, final_norm_, lane.offsets[i + 1] - 1, static_cast<int64_t>(i), 1));
  }
  lane.last_rows = static_cast<int64_t>(ranges.size());
  return absl::OkStatus();
}

absl::Status HybridModel::LastLogits(Lane& lane, std::span<float> logits) {
  if (lane.last_rows == 0) {
    return absl::FailedPreconditionError("no finished Prefill on this lane to give logits of");
  }
  return ComputeLogits(lane, lane.Rows(lane.offsets), logits);
}

// Of the first lane.last_rows rows of `normed`, a panel of rows at a time.
absl::Status HybridModel::ComputeLogits(Lane& lane, const PassRows& rows,
                                        std::span<float> logits) const {
  const int64_t vocabulary = config_.vocab_size;
  if (static_cast<int64_t>(logits.size()) != lane.last_rows * vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat("logits: ", logits.size(), " values for ",
                                                   lane.last_rows, " rows of ", vocabulary));
  }
  const kernels::Weight* head = output_head_ != nullptr ? output_head_.get() : embedding_.get();
  for (int64_t first = 0; first < lane.last_rows; first += kernels::kBlockTokens) {
    const int64_t count = std::min(kernels::kBlockTokens, lane.last_rows - first);
    DELTAFILL_TRY(rows.operators->MatMul({.x = RowsFrom(rows.normed, first),
                                          .weight = head,
                                          .y = {lane.logits(), kernels::DType::kF32, vocabulary},
                                          .rows = count,
                                          .step = rows.step}));
    DELTAFILL_TRY(
        rows.operators->CopyToHost(logits.data() + first * vocabulary, lane.logits(),
                                   static_cast<size_t>(count * vocabulary) * sizeof(float)));
  }
  return FromOperator(rows.operators->Synchronize());
}

absl::Status HybridModel::CheckDecode(const Lane& lane,
                                      std::span<const DecodeRow> sequences) const {
  const int64_t batch = static_cast<int64_t>(sequences.size());
  if (batch < 1 || batch > lane.sizes().rows_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows: ", batch, " sequences, must be 1 to the lane's ", lane.sizes().rows_max));
  }
  for (const DecodeRow& sequence : sequences) {
    DELTAFILL_TRY(CheckToken(sequence.token));
    if (sequence.state == nullptr) return absl::InvalidArgumentError("rows: a state is null");
    if (layout_.latents.layers.empty()) continue;
    if (sequence.latents == nullptr) {
      return absl::InvalidArgumentError("rows: a latent cache is null");
    }
    if (static_cast<uint64_t>(sequence.latents->capacity_tokens()) <= sequence.position) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows: position ", sequence.position, " is past the latent cache's ",
                       sequence.latents->capacity_tokens(), " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::Status HybridModel::DecodeStep(Lane& lane, std::span<const DecodeRow> sequences,
                                     std::span<float> logits) {
  lane.last_rows = 0;
  DELTAFILL_TRY(CheckDecode(lane, sequences));
  const int64_t batch = static_cast<int64_t>(sequences.size());
  lane.tokens.clear();
  for (const DecodeRow& sequence : sequences) lane.tokens.push_back(sequence.token);
  lane.offsets.resize(sequences.size() + 1);
  for (size_t i = 0; i < lane.offsets.size(); ++i) lane.offsets[i] = static_cast<int64_t>(i);
  PassRows rows = lane.Rows(lane.offsets);
  rows.step = true;
  const auto issue = [&] { return IssueStep(lane, rows, sequences); };
  if (layout_.latents.layers.empty()) {
    std::vector<void*>& states = lane.step_states;
    states.clear();
    for (const DecodeRow& sequence : sequences) states.push_back(sequence.state);
    DELTAFILL_TRY(lane.steps().Step(*rows.operators, states, lane.tokens, issue));
  } else {
    DELTAFILL_TRY(issue());  // the calls change with the position
  }
  lane.last_rows = batch;
  return ComputeLogits(lane, rows, logits);
}

absl::Status HybridModel::IssueStep(Lane& lane, const PassRows& rows,
                                    std::span<const DecodeRow> sequences) const {
  DELTAFILL_TRY(Embed(lane, rows));
  for (const Layer& layer : layers_) {
    DELTAFILL_TRY(Normalize(rows, layer.mixer_norm, 0, 0, rows.rows));
    DELTAFILL_TRY(layer.mixer->Decode(rows, sequences));
    DELTAFILL_TRY(Normalize(rows, layer.mlp_norm, 0, 0, rows.rows));
    DELTAFILL_TRY(layer.mlp->Forward(rows));
  }
  return Normalize(rows, final_norm_, 0, 0, rows.rows);
}

}  // namespace deltafill::worker
