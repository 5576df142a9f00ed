#include "worker/model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/checkpoint.h"
#include "worker/model/checkpoint_reader.h"
#include "worker/model/fingerprint.h"
#include "worker/model/hybrid_model.h"
#include "worker/model/init_tensors.h"
#include "worker/model/mapped_file.h"
#include "worker/model/model_directory.h"
#include "worker/model/random_reader.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

absl::StatusOr<std::unique_ptr<Model>> LoadFrom(WeightReader& reader, ModelConfig config,
                                                std::shared_ptr<kernels::Backend> backend,
                                                LoadProgress* progress) {
  DELTAFILL_TRY_ASSIGN(model, HybridModel::Load(std::move(config), reader, std::move(backend)));
  progress->Finish();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory) {
  DELTAFILL_TRY_ASSIGN(file, MappedFile::Open(directory + "/config.json"));
  auto config = ParseModelConfig(file->text());
  if (config.ok()) return config;
  return absl::Status(config.status().code(),
                      absl::StrCat(directory, ": ", config.status().message()));
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& directory,
                                                 std::shared_ptr<kernels::Backend> backend,
                                                 const LoadOptions& options) {
  DELTAFILL_TRY_ASSIGN(config, ReadModelConfig(directory));
  if (options.random_seed.has_value()) {
    LoadProgress progress("random weights", InitialTensorBytes(config), options.log);
    RandomReader reader(config, *options.random_seed, *backend, progress);
    return LoadFrom(reader, std::move(config), backend, &progress);
  }
  DELTAFILL_TRY_ASSIGN(checkpoint, Checkpoint::Open(directory));
  const ModelFingerprint fingerprint = CachedFingerprint(config, *checkpoint, options.log);
  LoadProgress progress("weights", checkpoint->TensorBytes(), options.log);
  CheckpointReader reader(*checkpoint, fingerprint, *backend, progress);
  return LoadFrom(reader, std::move(config), backend, &progress);
}

}  // namespace deltafill::worker
