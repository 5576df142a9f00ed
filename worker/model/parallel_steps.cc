#include "worker/model/parallel_steps.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace deltafill::worker {
namespace {

constexpr int64_t kThreadsMax = 32;

}  // namespace

absl::Status RunParallelSteps(int64_t count, const std::function<absl::Status(int64_t)>& step) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  int64_t failed = count;  // under mutex
  absl::Status fault;      // under mutex
  const auto work = [&] {
    for (int64_t index = next.fetch_add(1); index < count; index = next.fetch_add(1)) {
      absl::Status status = step(index);
      if (status.ok()) continue;
      next.store(count);
      const std::lock_guard<std::mutex> lock(mutex);
      if (index < failed) {
        failed = index;
        fault = std::move(status);
      }
    }
  };
  const int64_t machine = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min({count, machine, kThreadsMax}); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return fault;
}

}  // namespace deltafill::worker
