// Bounds the bytes that several threads hold at once.
#ifndef DELTAFILL_STATESTORE_BYTE_GATE_H_
#define DELTAFILL_STATESTORE_BYTE_GATE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace deltafill {

// Thread-safe.
class ByteGate {
 public:
  explicit ByteGate(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // False if the bytes did not become free in time. More than the limit passes when it is alone.
  bool Enter(uint64_t bytes, std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    const bool free =
        freed_.wait_for(lock, wait, [&] { return bytes_ == 0 || bytes_ + bytes <= bytes_max_; });
    if (free) bytes_ += bytes;
    return free;
  }

  void Leave(uint64_t bytes) {
    {
      std::lock_guard lock(mutex_);
      bytes_ -= bytes;
    }
    freed_.notify_all();
  }

 private:
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::condition_variable freed_;
  uint64_t bytes_ = 0;  // guarded by mutex_
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_BYTE_GATE_H_
