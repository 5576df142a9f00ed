#include "worker/runtime/state_pool.h"

#include <chrono>
#include <utility>

#include "worker/model/status_steps.h"

namespace deltafill::worker {

struct StatePool::Core : std::enable_shared_from_this<StatePool::Core> {
  Core(kernels::Backend* state_backend, size_t bytes, size_t buffers)
      : backend(state_backend), state_bytes(bytes), capacity(buffers) {}
  ~Core() {
    for (std::byte* buffer : free) backend->Free(buffer);
  }

  // With the mutex held and a buffer to be had.
  absl::StatusOr<StateBufferRef> Take() {
    std::byte* bytes = nullptr;
    if (!free.empty()) {
      bytes = free.back();
      free.pop_back();
    } else {
      void* allocated = nullptr;
      DELTAFILL_TRY(backend->Allocate(state_bytes, &allocated));
      bytes = static_cast<std::byte*>(allocated);
    }
    ++in_use;
    return StateBufferRef(new StateBuffer(bytes, state_bytes),
                          [core = shared_from_this()](const StateBuffer* buffer) {
                            core->GiveBack(buffer->bytes());
                            delete buffer;
                          });
  }

  void GiveBack(std::byte* bytes) {
    {
      std::lock_guard lock(mutex);
      free.push_back(bytes);
      --in_use;
    }
    given_back.notify_one();
  }

  kernels::Backend* const backend;
  const size_t state_bytes;
  const size_t capacity;
  mutable std::mutex mutex;
  std::condition_variable given_back;
  std::vector<std::byte*> free;  // guarded by mutex
  size_t in_use = 0;             // guarded by mutex
};

StatePool::StatePool(kernels::Backend* backend, size_t state_bytes, size_t capacity)
    : core_(std::make_shared<Core>(backend, state_bytes, capacity)) {}

absl::StatusOr<StateBufferRef> StatePool::TryAcquire() {
  std::lock_guard lock(core_->mutex);
  if (core_->in_use >= core_->capacity) return StateBufferRef();
  return core_->Take();
}

absl::StatusOr<StateBufferRef> StatePool::Acquire(const AttemptFlag& flag) {
  std::unique_lock lock(core_->mutex);
  while (core_->in_use >= core_->capacity) {
    if (flag.aborted()) return absl::CancelledError("aborted");
    core_->given_back.wait_for(lock, std::chrono::milliseconds(20));
  }
  return core_->Take();
}

size_t StatePool::capacity() const { return core_->capacity; }

size_t StatePool::in_use() const {
  std::lock_guard lock(core_->mutex);
  return core_->in_use;
}

}  // namespace deltafill::worker
