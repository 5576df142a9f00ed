// A bounded pool of prefix-state buffers in the backend's memory.
#ifndef DELTAFILL_WORKER_RUNTIME_STATE_POOL_H_
#define DELTAFILL_WORKER_RUNTIME_STATE_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "worker/model/state_layout.h"
#include "worker/runtime/attempt_book.h"

namespace deltafill::worker {

// One prefix state, laid out by the model's StateLayout; 64-byte aligned. Goes back to its pool
// with its last reference, which may outlive the pool object.
class StateBuffer {
 public:
  StateBuffer(std::byte* bytes, size_t size) : bytes_(bytes), size_(size) {}
  std::byte* bytes() const { return bytes_; }
  std::byte* at(const StateEntry& entry) const { return bytes_ + entry.offset; }
  size_t size() const { return size_; }

 private:
  std::byte* bytes_;
  size_t size_;
};
using StateBufferRef = std::shared_ptr<const StateBuffer>;

// Thread-safe. Memory is allocated when it is first needed and kept.
class StatePool {
 public:
  // `capacity` buffers of `state_bytes`; the backend must outlive pool and buffers.
  StatePool(kernels::Backend* backend, size_t state_bytes, size_t capacity);

  // nullptr if all are in use. RESOURCE_EXHAUSTED if the backend has no memory.
  absl::StatusOr<StateBufferRef> TryAcquire();

  // Waits for a free one. CANCELLED once the flag is set (noticed within 20 ms).
  absl::StatusOr<StateBufferRef> Acquire(const AttemptFlag& flag);

  size_t capacity() const;
  size_t in_use() const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_STATE_POOL_H_
