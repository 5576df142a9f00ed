// Makes model directories with random weights: for trying the service out, for tests and
// benchmarks.
#ifndef DELTAFILL_WORKER_MODEL_INIT_H_
#define DELTAFILL_WORKER_MODEL_INIT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/config.h"

namespace deltafill::worker {

struct ModelPreset {
  std::string name;
  ModelConfig config;
};

// tiny, small, dense-1b, kimi-linear-tiny (every kind of layer), kimi-linear-48b.
std::vector<std::string> ModelPresetNames();
// INVALID_ARGUMENT listing the names if there is none of that name.
absl::StatusOr<ModelPreset> FindModelPreset(std::string_view name);

// Bytes of a preset's weights. INVALID_ARGUMENT as above.
absl::StatusOr<uint64_t> InitialModelBytes(std::string_view preset);

// Writes config.json, generation_config.json, deltafill_tokenizer.json (bytes), README.md and the
// weights (bf16; vectors fp32) by their public names, in shards of at most 1 GiB. The bytes are a
// function of preset and seed, on any machine. Creates `directory`, which must be empty or not
// exist: ALREADY_EXISTS otherwise. RESOURCE_EXHAUSTED, with nothing but the directory made, if the
// weights do not fit on its disk. Memory stays small whatever the preset. The model is untrained;
// README.md says so.
absl::Status InitModel(std::string_view preset, uint64_t seed, const std::string& directory);

// All of it but the weights: for starting with random ones (LoadOptions). Errors as above.
absl::Status InitModelConfig(std::string_view preset, const std::string& directory);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_INIT_H_
