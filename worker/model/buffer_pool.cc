#include "worker/model/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

constexpr size_t kBytesMin = 4096;

}  // namespace

struct BufferPool::Core {
  ~Core() {
    for (const auto& [size, buffers] : free) {
      for (std::byte* buffer : buffers) Free(buffer);
    }
  }

  kernels::Status Allocate(size_t size, void** out) const {
    return place == Place::kHost ? backend->AllocateHost(size, out) : backend->Allocate(size, out);
  }
  void Free(std::byte* buffer) const {
    place == Place::kHost ? backend->FreeHost(buffer) : backend->Free(buffer);
  }

  kernels::Backend* backend = nullptr;
  Place place = Place::kBackend;
  std::mutex mutex;
  // Guarded by mutex.
  std::map<size_t, std::vector<std::byte*>> free;  // by size
  size_t bytes = 0;
};

BufferPool::BufferPool(kernels::Backend* backend, Place place) : core_(std::make_shared<Core>()) {
  core_->backend = backend;
  core_->place = place;
}

absl::StatusOr<PooledBuffer> BufferPool::Acquire(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, kBytesMin));
  std::byte* buffer = nullptr;
  {
    std::lock_guard lock(core_->mutex);
    std::vector<std::byte*>& free = core_->free[size];
    if (!free.empty()) {
      buffer = free.back();
      free.pop_back();
    }
  }
  if (buffer == nullptr) {
    void* allocated = nullptr;
    const absl::Status status = FromOperator(core_->Allocate(size, &allocated));
    std::lock_guard lock(core_->mutex);
    if (!status.ok()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          core_->place == Place::kHost ? "page-locked" : "device", " buffers: ", core_->bytes,
          " bytes are there, no room for ", size, " bytes more: ", status.message()));
    }
    core_->bytes += size;
    buffer = static_cast<std::byte*>(allocated);
  }
  return PooledBuffer(buffer, [core = core_, size](std::byte* given_back) {
    std::lock_guard lock(core->mutex);
    core->free[size].push_back(given_back);
  });
}

size_t BufferPool::bytes() const {
  std::lock_guard lock(core_->mutex);
  return core_->bytes;
}

}  // namespace deltafill::worker
