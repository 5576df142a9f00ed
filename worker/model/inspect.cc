#include "worker/model/inspect.h"

#include <filesystem>

#include "worker/model/checkpoint.h"
#include "worker/model/fingerprint.h"
#include "worker/model/model.h"
#include "worker/model/model_directory.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

absl::StatusOr<ModelDescription> InspectModel(const std::string& directory) {
  DELTAFILL_TRY_ASSIGN(config, ReadModelConfig(directory));
  DELTAFILL_TRY_ASSIGN(checkpoint, Checkpoint::Open(directory));
  DELTAFILL_TRY_ASSIGN(tokenizer, ReadTokenizerFile(directory));
  ModelDescription description;
  description.fingerprint = CachedFingerprint(config, *checkpoint);
  description.state_layout = MakeStateLayout(config);
  description.tokenizer_kind = tokenizer.kind;
  description.config = std::move(config);
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    const TensorEntry& entry = tensor.entry;
    description.tensors.push_back(
        {.name = name,
         .dtype = entry.dtype,
         .shape = entry.shape,
         .bytes = entry.end - entry.begin,
         .file = std::filesystem::path(tensor.file->path()).filename().string()});
    description.parameters += ElementCount(entry.shape).value_or(0);
    description.weight_bytes += entry.end - entry.begin;
  }
  return description;
}

}  // namespace deltafill::worker
