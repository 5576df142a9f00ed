// Stands in for libdeltafill_cuda.so: refuses to open and says what it was called with.
#include <cstdio>

#include "kernels/cuda/c_api.h"

extern "C" int deltafill_cuda_backend_open(const char* interface_id,
                                           const deltafill::kernels::BackendOptions* options,
                                           std::unique_ptr<deltafill::kernels::Backend>*,
                                           char* message, int64_t message_size) {
  std::snprintf(message, static_cast<size_t>(message_size), "dtype %d, interface %s",
                static_cast<int>(options->compute_dtype), interface_id);
  return static_cast<int>(deltafill::kernels::StatusCode::kResourceExhausted);
}
