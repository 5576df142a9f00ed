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

// What a failed allocation of `bytes` answers: `failure` with the size. Clears CUDA's last error.
Status AllocationFailed(const Status& failure, size_t bytes);

// kUnsupported with the reason if there is no usable device `device`; any error of the driver
// counts as none. Makes it the calling thread's current device otherwise.
Status SelectDevice(int device);

// The properties of the current device that plans depend on.
Status ReadDeviceTraits(DeviceTraits* traits);

// Device memory that grows and never shrinks; what it held is lost when it grows. Comes out of the
// device's pool. Freed with the object; the caller makes sure that no work still uses it then.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();

  // For work of this stream alone, if work that was issued before may still use a smaller buffer.
  // kUnsupported if it would have to grow while the stream's calls are recorded.
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

// A stream that does not wait for the default one.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  Status Create();
  // Waits for all its work; an error of that work is returned here.
  Status Synchronize() const;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Page-locked host memory that grows and never shrinks, with the event that says when the device
// has read it. Used by one thread at a time.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();

  // Waits until the last CopyTo has been read; then the first `bytes` may be written.
  Status Acquire(size_t bytes);
  Status CopyTo(void* device_to, size_t bytes, cudaStream_t stream);
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  cudaEvent_t read_ = nullptr;
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RUNTIME_H_
