// How far loading has come, for people who wait for it.
#ifndef DELTAFILL_WORKER_MODEL_LOAD_PROGRESS_H_
#define DELTAFILL_WORKER_MODEL_LOAD_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace deltafill::worker {

// From any thread.
using LogLine = std::function<void(const std::string& line)>;

// Writes "weights: 12.3 of 98.2 GB, 5 s" at most every two seconds. Thread-safe.
class LoadProgress {
 public:
  // `log` may be empty; `what` is "weights" above.
  LoadProgress(std::string what, uint64_t bytes_total, LogLine log);

  void Add(uint64_t bytes);
  // The last line: bytes, seconds and rate.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;
  const std::string what_;
  const uint64_t bytes_total_;
  const LogLine log_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  uint64_t bytes_ = 0;                  // by mutex_
  Clock::time_point written_ = start_;  // by mutex_
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_LOAD_PROGRESS_H_
