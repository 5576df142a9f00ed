// Small fp32 tensors on their way into a backend's memory.
#ifndef DELTAFILL_WORKER_MODEL_VECTOR_UPLOAD_H_
#define DELTAFILL_WORKER_MODEL_VECTOR_UPLOAD_H_

#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "worker/model/device_buffer.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

// Thread-safe; one copy at a time, through a lane of its own. The backend outlives it.
class VectorUpload {
 public:
  explicit VectorUpload(kernels::Backend* backend) : backend_(*backend) {}

  absl::StatusOr<DeviceBuffer> Upload(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    DELTAFILL_TRY_ASSIGN(buffer, DeviceBuffer::Allocate(backend_, bytes));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lane_ == nullptr) DELTAFILL_TRY(backend_.NewOperators(1, &lane_));
    DELTAFILL_TRY(lane_->CopyFromHost(buffer.get(), values.data(), bytes));
    DELTAFILL_TRY(lane_->Synchronize());
    return std::move(buffer);
  }

 private:
  kernels::Backend& backend_;
  std::mutex mutex_;
  std::unique_ptr<kernels::Operators> lane_;  // by mutex_
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_VECTOR_UPLOAD_H_
