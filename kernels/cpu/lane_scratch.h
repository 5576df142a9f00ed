// What a lane's operators share: memory kept between calls, and errors met inside parallel loops.
#ifndef DELTAFILL_KERNELS_CPU_LANE_SCRATCH_H_
#define DELTAFILL_KERNELS_CPU_LANE_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/status.h"

namespace deltafill::kernels::cpu {

// One buffer a thread, and one for what all threads read. Buffers grow and never shrink; contents
// do not outlive the operator that wrote them.
struct LaneScratch {
  explicit LaneScratch(int threads) : per_thread(static_cast<size_t>(threads)) {}

  // kResourceExhausted naming `operation` if there is no memory.
  Status ReservePerThread(size_t bytes, const char* operation);
  Status ReserveShared(size_t bytes, const char* operation);
  void* OfThread(int thread) const { return per_thread[static_cast<size_t>(thread)].as<void>(); }

  std::vector<AlignedBuffer> per_thread;
  AlignedBuffer shared;
};

// Cuts 64-byte aligned arrays out of one buffer. Run once without memory to learn the size.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <typename T>
  T* Cut(int64_t count) {
    char* const at = memory_ != nullptr ? memory_ + bytes_ : nullptr;
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  char* memory_;
  size_t bytes_ = 0;
};

// Collects the errors of a parallel loop's threads, each in its own slot.
class FirstFailure {
 public:
  explicit FirstFailure(int threads) : failures_(static_cast<size_t>(threads)) {}

  // True if OK; else the status is kept.
  bool Keep(int thread, Status status) {
    if (status.ok()) return true;
    failures_[static_cast<size_t>(thread)] = std::move(status);
    return false;
  }
  // The failure of the lowest thread, or OK. After the loop.
  Status Take() {
    for (Status& failure : failures_) {
      if (!failure.ok()) return std::move(failure);
    }
    return {};
  }

 private:
  std::vector<Status> failures_;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_LANE_SCRATCH_H_
