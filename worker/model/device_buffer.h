// Memory of a backend, freed with its owner.
#ifndef DELTAFILL_WORKER_MODEL_DEVICE_BUFFER_H_
#define DELTAFILL_WORKER_MODEL_DEVICE_BUFFER_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

// Move-only. The backend outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // RESOURCE_EXHAUSTED if it does not fit. Not zeroed; 64-byte aligned.
  static absl::StatusOr<DeviceBuffer> Allocate(kernels::Backend& backend, size_t bytes) {
    DeviceBuffer buffer;
    DELTAFILL_TRY(backend.Allocate(bytes, &buffer.start_));
    buffer.backend_ = &backend;
    buffer.bytes_ = bytes;
    return buffer;
  }
  ~DeviceBuffer() {
    if (backend_ != nullptr) backend_->Free(start_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* get() const { return start_; }
  const float* floats() const { return static_cast<const float*>(start_); }
  size_t bytes() const { return bytes_; }

 private:
  kernels::Backend* backend_ = nullptr;
  void* start_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_DEVICE_BUFFER_H_
