#include "kernels/cuda/c_api.h"
#include "kernels/cuda/open_library.h"

namespace deltafill::kernels {

Status NewCudaBackend(const BackendOptions& options, std::unique_ptr<Backend>* out) {
  constexpr cuda::RuntimeLibrary kLibrary{"CUDA library", "libdeltafill_cuda.so",
                                          "DELTAFILL_CUDA_LIBRARY", cuda::kOpenSymbol};
  void* entry = nullptr;
  if (Status s = cuda::OpenEntry(kLibrary, &entry); !s.ok()) return s;
  char message[1024] = "";
  const auto open = reinterpret_cast<cuda::OpenFunction>(entry);
  const int code = open(cuda::kInterfaceId, &options, out, message, sizeof(message));
  return {static_cast<StatusCode>(code), message};
}

}  // namespace deltafill::kernels
