// model init, model inspect.
#include <cstdio>

#include "client/commands.h"
#include "client/role.h"
#include "nlohmann/json.hpp"
#include "worker/model/init.h"
#include "worker/model/inspect.h"

namespace deltafill::client {

int RunModelInit(const ModelInitOptions& options) {
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
      {"model_type", model->config.model_type},     {"fingerprint", model->fingerprint.ToHex()},
      {"layers", model->config.layers.size()},      {"hidden_size", model->config.hidden_size},
      {"vocab_size", model->config.vocab_size},     {"kda_heads", model->config.kda_heads},
      {"kda_head_dim", model->config.kda_head_dim}, {"parameters", model->parameters},
      {"weight_bytes", model->weight_bytes},        {"state_bytes", model->state_layout.bytes},
      {"tokenizer", model->tokenizer_kind}};
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
