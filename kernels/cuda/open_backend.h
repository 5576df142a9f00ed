// Where the CUDA backend's library is looked for. NewCudaBackend (kernels/operators.h) opens it.
#ifndef DELTAFILL_KERNELS_CUDA_OPEN_BACKEND_H_
#define DELTAFILL_KERNELS_CUDA_OPEN_BACKEND_H_

#include <string>
#include <vector>

namespace deltafill::kernels::cuda {

// In order: `override_path` alone if it is not empty; else beside the executable, in ../lib from
// there, and by name alone, which is the loader's own search. An empty `executable` is left out.
std::vector<std::string> CudaLibraryPaths(const std::string& override_path,
                                          const std::string& executable);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_OPEN_BACKEND_H_
