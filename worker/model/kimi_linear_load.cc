// Loading: which tensors a Kimi-Linear checkpoint has, by their public names.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/dense_mlp.h"
#include "worker/model/kda_mixer.h"
#include "worker/model/kimi_linear.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

absl::Status CheckKinds(const ModelConfig& config) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const char* kind = nullptr;
    if (config.layers[i].mixer == MixerKind::kLatentAttention) kind = "latent attention (MLA)";
    if (config.layers[i].mlp == MlpKind::kMixtureOfExperts) kind = "a mixture of experts";
    if (kind != nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("model.layers.", i, ": ", kind, " is not supported"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> KimiLinearModel::Load(
    ModelConfig config, const Checkpoint& checkpoint, ModelFingerprint fingerprint,
    std::shared_ptr<kernels::Backend> backend) {
  DELTAFILL_TRY(CheckKinds(config));
  std::unique_ptr<KimiLinearModel> model(
      new KimiLinearModel(std::move(config), fingerprint, std::move(backend)));
  DELTAFILL_TRY(model->LoadWeights(checkpoint));
  return std::unique_ptr<Model>(std::move(model));
}

absl::Status KimiLinearModel::LoadWeights(const Checkpoint& checkpoint) {
  std::unique_ptr<kernels::Operators> operators;
  DELTAFILL_TRY(backend_->NewOperators(1, &operators));
  WeightReader reader(checkpoint, *backend_, *operators);
  const int64_t hidden = config_.hidden_size;
  DELTAFILL_TRY_ASSIGN(embedding,
                       reader.Matrix({{"model.embed_tokens.weight", config_.vocab_size}}, hidden));
  embedding_ = std::move(embedding);
  if (!config_.tie_word_embeddings) {
    DELTAFILL_TRY_ASSIGN(head, reader.Matrix({{"lm_head.weight", config_.vocab_size}}, hidden));
    output_head_ = std::move(head);
  }
  DELTAFILL_TRY_ASSIGN(final_norm, reader.Vector({"model.norm.weight"}, {hidden}));
  final_norm_ = std::move(final_norm);
  for (uint32_t index = 0; index < config_.layers.size(); ++index) {
    DELTAFILL_TRY_ASSIGN(layer, LoadLayer(index, reader));
    layers_.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

absl::StatusOr<KimiLinearModel::Layer> KimiLinearModel::LoadLayer(uint32_t index,
                                                                  WeightReader& reader) const {
  const std::string prefix = absl::StrCat("model.layers.", index, ".");
  Layer layer;
  DELTAFILL_TRY_ASSIGN(mixer_norm,
                       reader.Vector({prefix + "input_layernorm.weight"}, {config_.hidden_size}));
  layer.mixer_norm = std::move(mixer_norm);
  DELTAFILL_TRY_ASSIGN(
      mlp_norm, reader.Vector({prefix + "post_attention_layernorm.weight"}, {config_.hidden_size}));
  layer.mlp_norm = std::move(mlp_norm);
  DELTAFILL_TRY_ASSIGN(mixer, LoadKdaMixer(config_, layout_, index, prefix + "self_attn.", reader));
  layer.mixer = std::move(mixer);
  DELTAFILL_TRY_ASSIGN(mlp, LoadDenseMlp(config_, prefix + "mlp.", reader));
  layer.mlp = std::move(mlp);
  return layer;
}

}  // namespace deltafill::worker
