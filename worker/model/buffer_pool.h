// Memory of a backend, or page-locked memory of the host, that is used again and again.
#ifndef DELTAFILL_WORKER_MODEL_BUFFER_POOL_H_
#define DELTAFILL_WORKER_MODEL_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/operators.h"

namespace deltafill::worker {

// Goes back to its pool with its last reference, which may outlive the pool.
using PooledBuffer = std::shared_ptr<std::byte>;

// Thread-safe. Unbounded: what it holds is the most that was in use at once, and its users have
// bounds of their own. Allocating may wait for the device, so sizes are rounded up to powers of two
// and memory is kept.
class BufferPool {
 public:
  enum class Place : uint8_t { kBackend, kHost };

  // The backend outlives pool and buffers.
  BufferPool(kernels::Backend* backend, Place place);

  // At least `bytes`, 64-byte aligned, not zeroed. Whoever gives it back has finished all work that
  // uses it. RESOURCE_EXHAUSTED with the sizes if it does not fit.
  absl::StatusOr<PooledBuffer> Acquire(size_t bytes);

  // Makes sure that one Acquire of so much takes no new memory.
  absl::Status Prepare(size_t bytes) { return Acquire(bytes).status(); }

  size_t bytes() const;  // of all its memory

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_BUFFER_POOL_H_
