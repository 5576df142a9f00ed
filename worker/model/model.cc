#include "worker/model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/checkpoint.h"
#include "worker/model/fingerprint.h"
#include "worker/model/hybrid_model.h"
#include "worker/model/mapped_file.h"
#include "worker/model/model_directory.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory) {
  DELTAFILL_TRY_ASSIGN(file, MappedFile::Open(directory + "/config.json"));
  auto config = ParseModelConfig(file->text());
  if (config.ok()) return config;
  return absl::Status(config.status().code(),
                      absl::StrCat(directory, ": ", config.status().message()));
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& directory,
                                                 std::shared_ptr<kernels::Backend> backend) {
  DELTAFILL_TRY_ASSIGN(config, ReadModelConfig(directory));
  DELTAFILL_TRY_ASSIGN(checkpoint, Checkpoint::Open(directory));
  const ModelFingerprint fingerprint = CachedFingerprint(config, *checkpoint);
  return HybridModel::Load(std::move(config), *checkpoint, fingerprint, std::move(backend));
}

}  // namespace deltafill::worker
