#include "kernels/cuda/open_backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "kernels/cuda/c_api.h"

namespace deltafill::kernels {
namespace cuda {
namespace {

constexpr char kLibraryName[] = "libdeltafill_cuda.so";
constexpr char kPathVariable[] = "DELTAFILL_CUDA_LIBRARY";

std::string LoaderError() {
  const char* const error = dlerror();
  return error != nullptr ? error : "unknown error of the dynamic loader";
}

// The library stays open until the process ends: weights, lanes and CUDA's own exit handlers are
// its code.
Status OpenLibrary(const std::vector<std::string>& paths, void** library) {
  std::string tried;
  for (const std::string& path : paths) {
    const bool by_name = path.find('/') == std::string::npos;
    std::error_code error;
    tried += (tried.empty() ? "" : ", ") + path;
    if (!by_name && !std::filesystem::exists(path, error)) continue;
    *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*library != nullptr) return {};
    const std::string why = LoaderError();
    // By name it may just not be there; a file that is there is what was meant.
    if (!by_name) {
      return {StatusCode::kUnsupported, "CUDA library: " + path + " does not load: " + why};
    }
  }
  return {StatusCode::kUnsupported, "CUDA library not found: tried " + tried + " (" +
                                        kPathVariable + " may name another path)"};
}

}  // namespace

std::vector<std::string> CudaLibraryPaths(const std::string& override_path,
                                          const std::string& executable) {
  if (!override_path.empty()) return {override_path};
  std::vector<std::string> paths;
  if (!executable.empty()) {
    const std::filesystem::path folder = std::filesystem::path(executable).parent_path();
    paths.push_back((folder / kLibraryName).string());
    paths.push_back((folder.parent_path() / "lib" / kLibraryName).string());
  }
  paths.push_back(kLibraryName);
  return paths;
}

}  // namespace cuda

Status NewCudaBackend(const BackendOptions& options, std::unique_ptr<Backend>* out) {
  const char* const override_path = std::getenv(cuda::kPathVariable);
  std::error_code error;
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe", error).string();
  void* library = nullptr;
  if (Status s = cuda::OpenLibrary(
          cuda::CudaLibraryPaths(override_path != nullptr ? override_path : "", executable),
          &library);
      !s.ok()) {
    return s;
  }
  void* const symbol = dlsym(library, cuda::kOpenSymbol);
  if (symbol == nullptr) {
    return {StatusCode::kUnsupported, "CUDA library: " + cuda::LoaderError()};
  }
  char message[1024] = "";
  const auto open = reinterpret_cast<cuda::OpenFunction>(symbol);
  const int code = open(cuda::kInterfaceId, &options, out, message, sizeof(message));
  return {static_cast<StatusCode>(code), message};
}

}  // namespace deltafill::kernels
