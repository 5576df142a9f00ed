#include "worker/model/mla_mixer.h"

#include <utility>
#include <vector>

#include "worker/model/lane.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

using kernels::MutableRows;

// Scratch columns: the latent projection's output; q; the attention's output o.
class MlaMixer final : public SequenceMixer {
 public:
  MlaMixer(const ModelConfig& config, uint32_t layer)
      : layer_(layer),
        hidden_(config.hidden_size),
        norm_eps_(static_cast<float>(config.latent.norm_eps)) {
    shape_.heads = static_cast<int>(config.latent.heads);
    shape_.nope_dim = static_cast<int>(config.latent.nope_dim);
    shape_.rope_dim = static_cast<int>(config.latent.rope_dim);
    shape_.value_dim = static_cast<int>(config.latent.value_dim);
    shape_.rank = static_cast<int>(config.latent.rank);
  }

  absl::Status Load(const std::string& prefix, WeightReader& reader);

  int64_t ScratchWidth() const override {
    return shape_.LatentWidth() + shape_.QueryWidth() + shape_.OutputWidth();
  }
  absl::Status Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const override;
  absl::Status Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const override;

 private:
  MutableRows LatentInput(const PassRows& rows) const {
    return rows.Scratch(0, shape_.LatentWidth());
  }
  MutableRows Query(const PassRows& rows) const {
    return rows.Scratch(shape_.LatentWidth(), shape_.QueryWidth());
  }
  MutableRows Output(const PassRows& rows) const {
    return rows.Scratch(shape_.LatentWidth() + shape_.QueryWidth(), shape_.OutputWidth());
  }

  absl::Status AppendLatents(const PassRows& rows) const;
  absl::Status ProjectQuery(const PassRows& rows) const;
  absl::Status ProjectOutput(const PassRows& rows) const;

  const uint32_t layer_;
  const int64_t hidden_;
  const float norm_eps_;
  kernels::LatentShape shape_;
  std::unique_ptr<kernels::Weight> latent_;  // [rank + rope_dim, hidden]: kv_a_proj_with_mqa
  DeviceBuffer latent_norm_;                 // [rank]: kv_a_layernorm
  std::unique_ptr<kernels::Weight> query_;   // [heads (nope_dim + rope_dim), hidden]
  std::unique_ptr<kernels::LatentProjection> projection_;  // kv_b_proj
  std::unique_ptr<kernels::Weight> output_;                // [hidden, heads value_dim]
};

absl::Status MlaMixer::Load(const std::string& prefix, WeightReader& reader) {
  DELTAFILL_TRY_ASSIGN(
      latent,
      reader.Matrix({{prefix + "kv_a_proj_with_mqa.weight", shape_.LatentWidth()}}, hidden_));
  latent_ = std::move(latent);
  DELTAFILL_TRY_ASSIGN(norm, reader.Vector({{prefix + "kv_a_layernorm.weight", {shape_.rank}}}));
  latent_norm_ = std::move(norm);
  DELTAFILL_TRY_ASSIGN(query,
                       reader.Matrix({{prefix + "q_proj.weight", shape_.QueryWidth()}}, hidden_));
  query_ = std::move(query);
  DELTAFILL_TRY_ASSIGN(projection, reader.LatentProjection(prefix + "kv_b_proj.weight", shape_));
  projection_ = std::move(projection);
  DELTAFILL_TRY_ASSIGN(output,
                       reader.Matrix({{prefix + "o_proj.weight", hidden_}}, shape_.OutputWidth()));
  output_ = std::move(output);
  return absl::OkStatus();
}

// Into the caches of pointers->latents.
absl::Status MlaMixer::AppendLatents(const PassRows& rows) const {
  const MutableRows input = LatentInput(rows);
  DELTAFILL_TRY(rows.operators->MatMul({.x = rows.normed,
                                        .weight = latent_.get(),
                                        .y = input,
                                        .rows = rows.rows,
                                        .step = rows.step}));
  return FromOperator(rows.operators->LatentAppend({.x = input,
                                                    .norm_weight = latent_norm_.floats(),
                                                    .eps = norm_eps_,
                                                    .rank = shape_.rank,
                                                    .rope_dim = shape_.rope_dim,
                                                    .offsets = rows.offsets,
                                                    .sequences = rows.pointers->latents}));
}

absl::Status MlaMixer::ProjectQuery(const PassRows& rows) const {
  return FromOperator(rows.operators->MatMul({.x = rows.normed,
                                              .weight = query_.get(),
                                              .y = Query(rows),
                                              .rows = rows.rows,
                                              .step = rows.step}));
}

absl::Status MlaMixer::ProjectOutput(const PassRows& rows) const {
  return FromOperator(rows.operators->MatMul({.x = Output(rows),
                                              .weight = output_.get(),
                                              .y = rows.hidden,
                                              .rows = rows.rows,
                                              .accumulate = true,
                                              .step = rows.step}));
}

// The latents are all that later ranges wait for, so they come first: everything else of the layer
// is done after they were handed on.
absl::Status MlaMixer::Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const {
  std::vector<kernels::LatentSequence>& latents = rows.pointers->latents;
  latents.clear();
  for (const RangeWork& range : ranges) {
    DELTAFILL_TRY_ASSIGN(sequence, range.port->Latents(layer_));
    latents.push_back(sequence);
  }
  DELTAFILL_TRY(AppendLatents(rows));
  for (const RangeWork& range : ranges) DELTAFILL_TRY(range.port->ShareLatents(layer_));
  DELTAFILL_TRY(ProjectQuery(rows));
  DELTAFILL_TRY(rows.operators->LatentPrefill({.projection = projection_.get(),
                                               .q = Query(rows),
                                               .offsets = rows.offsets,
                                               .sequences = latents,
                                               .o = Output(rows)}));
  return ProjectOutput(rows);
}

absl::Status MlaMixer::Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const {
  std::vector<kernels::LatentSequence>& latents = rows.pointers->latents;
  latents.clear();
  for (const DecodeRow& sequence : sequences) {
    latents.push_back({.pages = sequence.latents->Pages(layer_),
                       .first_token = static_cast<int64_t>(sequence.position)});
  }
  DELTAFILL_TRY(AppendLatents(rows));
  DELTAFILL_TRY(ProjectQuery(rows));
  DELTAFILL_TRY(rows.operators->LatentStep({.projection = projection_.get(),
                                            .q = Query(rows),
                                            .sequences = latents,
                                            .o = Output(rows)}));
  return ProjectOutput(rows);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMlaMixer(const ModelConfig& config,
                                                            uint32_t layer,
                                                            const std::string& prefix,
                                                            WeightReader& reader) {
  auto mixer = std::make_unique<MlaMixer>(config, layer);
  DELTAFILL_TRY(mixer->Load(prefix, reader));
  return mixer;
}

}  // namespace deltafill::worker
