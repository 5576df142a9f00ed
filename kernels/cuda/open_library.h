// Opening the shared libraries that the static core finds at run time.
#ifndef DELTAFILL_KERNELS_CUDA_OPEN_LIBRARY_H_
#define DELTAFILL_KERNELS_CUDA_OPEN_LIBRARY_H_

#include <string>
#include <vector>

#include "kernels/status.h"

namespace deltafill::kernels::cuda {

struct RuntimeLibrary {
  const char* what;           // in messages: "CUDA library"
  const char* file;           // "libdeltafill_cuda.so"
  const char* path_variable;  // the environment variable that may name another path
  const char* entry;          // the symbol that is called
};

// Where a library is looked for, in order: `override_path` alone if it is not empty; else beside
// the executable, in ../lib from there, and by name alone, which is the loader's own search. An
// empty `executable` is left out.
std::vector<std::string> LibraryPaths(const std::string& file, const std::string& override_path,
                                      const std::string& executable);

// The entry's address. The library stays open until the process ends. kUnsupported: it is not
// found, does not load, or lacks the entry.
Status OpenEntry(const RuntimeLibrary& library, void** entry);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_OPEN_LIBRARY_H_
