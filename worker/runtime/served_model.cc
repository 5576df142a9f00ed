#include <filesystem>
#include <utility>

#include "worker/model/status_steps.h"
#include "worker/runtime/worker.h"

namespace deltafill::worker {
namespace {

std::string LastComponent(const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  if (path.filename() == "." || path.filename() == "..") {
    std::error_code error;
    path = std::filesystem::canonical(path, error);
  }
  return path.filename().string();
}

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const std::string& directory,
                                            const kernels::BackendOptions& backend_options,
                                            const std::string& name) {
  std::unique_ptr<kernels::Backend> backend;
  DELTAFILL_TRY(kernels::NewCpuBackend(backend_options, &backend));
  DELTAFILL_TRY_ASSIGN(tokenizer, ReadTokenizerFile(directory));
  DELTAFILL_TRY_ASSIGN(model, LoadModel(directory, std::move(backend)));
  ServedModel served;
  served.model = std::move(model);
  served.name = name.empty() ? LastComponent(directory) : name;
  served.tokenizer = std::move(tokenizer);
  return served;
}

}  // namespace deltafill::worker
