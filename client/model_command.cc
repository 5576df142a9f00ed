// model init, model inspect.
#include <cstdio>

#include "client/commands.h"
#include "client/role.h"
#include "nlohmann/json.hpp"
#include "worker/model/init.h"
#include "worker/model/inspect.h"

namespace deltafill::client {
namespace {

constexpr uint64_t kLargeBytes = 1'000'000'000;  // from here on the user is told before the wait

// Layers by kind, and the sizes that only hybrids have.
void DescribeKinds(const worker::ModelConfig& config, nlohmann::ordered_json* result) {
  size_t attention = 0;
  size_t mixtures = 0;
  for (const worker::LayerConfig& layer : config.layers) {
    attention += layer.mixer == worker::MixerKind::kLatentAttention ? 1 : 0;
    mixtures += layer.mlp == worker::MlpKind::kMixtureOfExperts ? 1 : 0;
  }
  if (config.kda_value_heads != config.kda_heads ||
      config.kda_value_head_dim != config.kda_head_dim) {
    (*result)["kda_value_heads"] = config.kda_value_heads;
    (*result)["kda_value_head_dim"] = config.kda_value_head_dim;
  }
  if (attention > 0) {
    (*result)["latent_attention"] = {{"layers", attention},
                                     {"heads", config.latent.heads},
                                     {"nope_dim", config.latent.nope_dim},
                                     {"rope_dim", config.latent.rope_dim},
                                     {"value_dim", config.latent.value_dim},
                                     {"rank", config.latent.rank},
                                     {"norm_eps", config.latent.norm_eps}};
  }
  if (mixtures > 0) {
    (*result)["experts"] = {{"layers", mixtures},
                            {"count", config.experts.count},
                            {"per_token", config.experts.per_token},
                            {"width", config.experts.width},
                            {"shared", config.experts.shared},
                            {"biased_weights", config.experts.biased_weights}};
  }
}

int InitConfigOnly(const ModelInitOptions& options) {
  const absl::Status status = worker::InitModelConfig(options.preset, options.out_directory);
  if (!status.ok()) return FailRole("model init", status);
  if (options.json) {
    const nlohmann::ordered_json result = {
        {"out", options.out_directory}, {"preset", options.preset}, {"weights", false}};
    std::printf("%s\n", result.dump().c_str());
  } else {
    std::printf("%s: preset %s without weights; serve it with --random-weights SEED\n",
                options.out_directory.c_str(), options.preset.c_str());
  }
  return 0;
}

}  // namespace

int RunModelInit(const ModelInitOptions& options) {
  if (options.config_only) return InitConfigOnly(options);
  const absl::StatusOr<uint64_t> bytes = worker::InitialModelBytes(options.preset);
  if (!bytes.ok()) return FailRole("model init", bytes.status());
  if (*bytes >= kLargeBytes) {
    std::fprintf(stderr, "%s: %.1f GB of weights\n", options.preset.c_str(),
                 static_cast<double>(*bytes) * 1e-9);
  }
  const absl::Status status =
      worker::InitModel(options.preset, options.seed, options.out_directory);
  if (!status.ok()) return FailRole("model init", status);
  absl::StatusOr<worker::ModelDescription> model = worker::InspectModel(options.out_directory);
  if (!model.ok()) return FailRole("model init", model.status());
  if (options.json) {
    const nlohmann::ordered_json result = {{"out", options.out_directory},
                                           {"preset", options.preset},
                                           {"seed", options.seed},
                                           {"parameters", model->parameters},
                                           {"fingerprint", model->fingerprint.ToHex()},
                                           {"trained", false}};
    std::printf("%s\n", result.dump().c_str());
  } else {
    std::printf(
        "%s: preset %s, seed %llu, %llu parameters; random weights, untrained: its text "
        "means nothing\n",
        options.out_directory.c_str(), options.preset.c_str(),
        static_cast<unsigned long long>(options.seed),
        static_cast<unsigned long long>(model->parameters));
  }
  return 0;
}

int RunModelInspect(const ModelInspectOptions& options) {
  absl::StatusOr<worker::ModelDescription> model = worker::InspectModel(options.directory);
  if (!model.ok()) return FailRole("model inspect", model.status());
  nlohmann::ordered_json result = {
      {"model_type", model->config.model_type},
      {"fingerprint", model->fingerprint.ToHex()},
      {"layers", model->config.layers.size()},
      {"hidden_size", model->config.hidden_size},
      {"vocab_size", model->config.vocab_size},
      {"kda_heads", model->config.kda_heads},
      {"kda_head_dim", model->config.kda_head_dim},
      {"parameters", model->parameters},
      {"weight_bytes", model->weight_bytes},
      {"state_bytes", model->state_layout.bytes},
      {"latent_bytes_per_token",
       model->state_layout.latents.layers.size() * model->state_layout.latents.RowBytes()},
      {"tokenizer", model->tokenizer_kind}};
  DescribeKinds(model->config, &result);
  if (!options.json) {
    std::printf("%s\n", result.dump(2).c_str());
    for (const worker::TensorDescription& tensor : model->tensors) {
      std::printf("%-64s %-5s %s %s\n", tensor.name.c_str(), tensor.dtype.c_str(),
                  nlohmann::json(tensor.shape).dump().c_str(), tensor.file.c_str());
    }
    return 0;
  }
  auto& tensors = result["tensors"] = nlohmann::ordered_json::array();
  for (const worker::TensorDescription& tensor : model->tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes},
                       {"file", tensor.file}});
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace deltafill::client
