// CUDA's runtime behind Status and owning handles. No call here aborts.
#ifndef DELTAFILL_KERNELS_CUDA_RUNTIME_H_
#define DELTAFILL_KERNELS_CUDA_RUNTIME_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/plan.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

// OK, kResourceExhausted for failed allocations, otherwise kInternal with CUDA's own words.
Status FromCuda(cudaError_t error, const char* call);

// The properties of the current device that plans depend on.
Status ReadDeviceTraits(DeviceTraits* traits);

// Device memory that grows and never shrinks; what it held is lost when it grows. Freed with the
// object; the caller makes sure that no work still uses it then.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();

  // Waits for the stream before it frees a smaller buffer.
  Status Reserve(size_t bytes, cudaStream_t stream);

  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RUNTIME_H_
