// The one entry of libdeltafill_cuda.so that the static core calls.
#ifndef DELTAFILL_KERNELS_CUDA_C_API_H_
#define DELTAFILL_KERNELS_CUDA_C_API_H_

#include <cstdint>
#include <memory>

#include "kernels/operators.h"

namespace deltafill::kernels::cuda {

// Names the interface's headers and the compiler: classes cross the library's border, so both sides
// must have been built from the same.
inline constexpr char kInterfaceId[] = DELTAFILL_KERNELS_INTERFACE_ID;

inline constexpr char kOpenSymbol[] = "deltafill_cuda_backend_open";

// Returns a StatusCode and writes the status's message. Reads nothing but `interface_id` before it
// has compared it with its own.
using OpenFunction = int (*)(const char* interface_id, const BackendOptions* options,
                             std::unique_ptr<Backend>* out, char* message, int64_t message_size);

}  // namespace deltafill::kernels::cuda

extern "C" int deltafill_cuda_backend_open(const char* interface_id,
                                           const deltafill::kernels::BackendOptions* options,
                                           std::unique_ptr<deltafill::kernels::Backend>* out,
                                           char* message, int64_t message_size);

#endif  // DELTAFILL_KERNELS_CUDA_C_API_H_
