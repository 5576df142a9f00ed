#include "worker/model/model.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/checkpoint.h"
#include "worker/model/fingerprint.h"
#include "worker/model/kimi_linear.h"
#include "worker/model/mapped_file.h"
#include "worker/model/model_directory.h"
#include "worker/model/status_steps.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

constexpr size_t kTokenizerBytesMax = size_t{64} << 20;

}  // namespace

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
  return KimiLinearModel::Load(std::move(config), *checkpoint, fingerprint, std::move(backend));
}

absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& directory) {
  const std::string path = directory + "/" + kTokenizerFileName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return TokenizerFile{};
  DELTAFILL_TRY_ASSIGN(file, MappedFile::Open(path));
  if (file->bytes().size() > kTokenizerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": over ", kTokenizerBytesMax, " bytes"));
  }
  auto document = ParseStrictJson(file->text());
  if (!document.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", document.status().message()));
  }
  if (!document->is_object() || !document->contains("kind") || !(*document)["kind"].is_string() ||
      (*document)["kind"].get<std::string>().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": kind must be a string"));
  }
  return TokenizerFile{(*document)["kind"].get<std::string>(), std::string(file->text())};
}

}  // namespace deltafill::worker
