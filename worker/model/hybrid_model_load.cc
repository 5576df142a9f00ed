// Loading: which tensors a checkpoint has, by their public names.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/dense_mlp.h"
#include "worker/model/hybrid_model.h"
#include "worker/model/kda_mixer.h"
#include "worker/model/mla_mixer.h"
#include "worker/model/moe_mlp.h"
#include "worker/model/parallel_steps.h"
#include "worker/model/status_steps.h"
#include "worker/model/tensor_names.h"

namespace deltafill::worker {

absl::StatusOr<std::unique_ptr<HybridModel>> HybridModel::Load(
    ModelConfig config, WeightReader& reader, std::shared_ptr<kernels::Backend> backend) {
  std::unique_ptr<HybridModel> model(new HybridModel(std::move(config), std::move(backend)));
  DELTAFILL_TRY(model->LoadWeights(reader));
  model->fingerprint_ = reader.Fingerprint();
  return model;
}

absl::Status HybridModel::LoadWeights(WeightReader& reader) {
  const int64_t hidden = config_.hidden_size;
  DELTAFILL_TRY_ASSIGN(
      embedding, reader.Matrix({{NamesOf(config_.family).embedding, config_.vocab_size}}, hidden));
  embedding_ = std::move(embedding);
  if (!config_.tie_word_embeddings) {
    DELTAFILL_TRY_ASSIGN(head, reader.Matrix({{kOutputHeadName, config_.vocab_size}}, hidden));
    output_head_ = std::move(head);
  }
  DELTAFILL_TRY_ASSIGN(final_norm, reader.Vector({{kFinalNormName, {hidden}}}));
  final_norm_ = std::move(final_norm);
  return LoadLayers(reader);
}

// The first layer of each kind alone, the others at once: the first weight of a shape is the one
// that a backend chooses its algorithms with, and must not depend on threads. Layers with experts
// are wide enough in themselves.
absl::Status HybridModel::LoadLayers(WeightReader& reader) {
  layers_.resize(config_.layers.size());
  const auto load = [&](size_t index) -> absl::Status {
    DELTAFILL_TRY_ASSIGN(layer, LoadLayer(static_cast<uint32_t>(index), reader));
    layers_[index] = std::move(layer);
    return absl::OkStatus();
  };
  std::set<std::pair<MixerKind, MlpKind>> kinds;
  std::vector<size_t> others;
  for (size_t index = 0; index < layers_.size(); ++index) {
    const LayerConfig& layer = config_.layers[index];
    if (kinds.emplace(layer.mixer, layer.mlp).second || layer.mlp == MlpKind::kMixtureOfExperts) {
      DELTAFILL_TRY(load(index));
    } else {
      others.push_back(index);
    }
  }
  return RunParallelSteps(static_cast<int64_t>(others.size()),
                          [&](int64_t step) { return load(others[static_cast<size_t>(step)]); });
}

absl::StatusOr<HybridModel::Layer> HybridModel::LoadLayer(uint32_t index,
                                                          WeightReader& reader) const {
  const TensorNames& names = NamesOf(config_.family);
  const std::string prefix = absl::StrCat("model.layers.", index, ".");
  const std::string mixer_prefix = prefix + names.mixer;
  Layer layer;
  DELTAFILL_TRY_ASSIGN(mixer_norm,
                       reader.Vector({{prefix + names.mixer_norm, {config_.hidden_size}}}));
  layer.mixer_norm = std::move(mixer_norm);
  DELTAFILL_TRY_ASSIGN(mlp_norm, reader.Vector({{prefix + names.mlp_norm, {config_.hidden_size}}}));
  layer.mlp_norm = std::move(mlp_norm);
  auto mixer = config_.layers[index].mixer == MixerKind::kLatentAttention
                   ? LoadMlaMixer(config_, index, mixer_prefix, reader)
                   : LoadKdaMixer(config_, layout_, index, mixer_prefix, reader);
  if (!mixer.ok()) return mixer.status();
  layer.mixer = *std::move(mixer);
  DELTAFILL_TRY_ASSIGN(mlp, LoadMlp(index, reader));
  layer.mlp = std::move(mlp);
  return layer;
}

absl::StatusOr<std::unique_ptr<LayerMlp>> HybridModel::LoadMlp(uint32_t index,
                                                               WeightReader& reader) const {
  const std::string prefix = absl::StrCat("model.layers.", index, ".");
  if (config_.layers[index].mlp == MlpKind::kMixtureOfExperts) {
    return LoadMoeMlp(config_, prefix + kExpertsPrefix, reader);
  }
  std::string dense = prefix + NamesOf(config_.family).dense_mlp;
  // transformers saves dense layers of models with experts under the experts' name.
  if (!reader.Has(dense + "gate_proj.weight") &&
      reader.Has(prefix + kExpertsPrefix + "gate_proj.weight")) {
    dense = prefix + kExpertsPrefix;
  }
  return LoadDenseMlp(config_.hidden_size, config_.intermediate_size, dense, reader);
}

}  // namespace deltafill::worker
