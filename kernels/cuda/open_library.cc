#include "kernels/cuda/open_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace deltafill::kernels::cuda {
namespace {

std::string LoaderError() {
  const char* const error = dlerror();
  return error != nullptr ? error : "unknown error of the dynamic loader";
}

Status NotLoaded(const RuntimeLibrary& library, const std::string& path, const std::string& why) {
  return {StatusCode::kUnsupported,
          std::string(library.what) + ": " + path + " does not load: " + why};
}

// The library stays open until the process ends: what it made, and CUDA's own exit handlers, are
// its code.
Status OpenFirst(const RuntimeLibrary& library, const std::vector<std::string>& paths,
                 void** opened) {
  std::string tried;
  for (const std::string& path : paths) {
    const bool by_name = path.find('/') == std::string::npos;
    std::error_code error;
    tried += (tried.empty() ? "" : ", ") + path;
    if (!by_name && !std::filesystem::exists(path, error)) continue;
    *opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*opened != nullptr) return {};
    // By name it may just not be there; a file that is there is what was meant.
    const std::string why = LoaderError();
    if (!by_name) return NotLoaded(library, path, why);
  }
  return {StatusCode::kUnsupported, std::string(library.what) + " not found: tried " + tried +
                                        " (" + library.path_variable + " may name another path)"};
}

}  // namespace

std::vector<std::string> LibraryPaths(const std::string& file, const std::string& override_path,
                                      const std::string& executable) {
  if (!override_path.empty()) return {override_path};
  std::vector<std::string> paths;
  if (!executable.empty()) {
    const std::filesystem::path folder = std::filesystem::path(executable).parent_path();
    paths.push_back((folder / file).string());
    paths.push_back((folder.parent_path() / "lib" / file).string());
  }
  paths.push_back(file);
  return paths;
}

Status OpenEntry(const RuntimeLibrary& library, void** entry) {
  const char* const override_path = std::getenv(library.path_variable);
  std::error_code error;
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe", error).string();
  void* opened = nullptr;
  if (Status s = OpenFirst(
          library,
          LibraryPaths(library.file, override_path != nullptr ? override_path : "", executable),
          &opened);
      !s.ok()) {
    return s;
  }
  *entry = dlsym(opened, library.entry);
  if (*entry != nullptr) return {};
  return {StatusCode::kUnsupported, std::string(library.what) + ": " + LoaderError()};
}

}  // namespace deltafill::kernels::cuda
