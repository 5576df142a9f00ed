// A fixed set of threads that run one parallel loop at a time: the CPU lane's pool.
#ifndef DELTAFILL_KERNELS_CPU_THREAD_TEAM_H_
#define DELTAFILL_KERNELS_CPU_THREAD_TEAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace deltafill::kernels::cpu {

// Used by one thread at a time (the caller, which works along as thread 0). Loops must not nest on
// the same team. Loop bodies must not throw.
class ThreadTeam {
 public:
  // `threads` counts the caller; values below 1 are taken as 1. With 1 no thread is started. If the
  // system refuses a thread, the team is smaller; threads() tells.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index, thread) once for each index in [0, count), thread in [0, threads()), and
  // returns when all calls have returned; their writes are visible to the caller. Indices are
  // claimed in ascending order by whoever is free, so bits must not depend on `thread`.
  template <typename Body>
  void ParallelFor(int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    Run(count, {const_cast<void*>(static_cast<const void*>(std::addressof(body))),
                [](void* object, int64_t index, int thread) {
                  (*static_cast<Plain*>(object))(index, thread);
                }});
  }

 private:
  // A borrowed callable: std::function would allocate on every loop.
  struct BodyRef {
    void* object = nullptr;
    void (*call)(void* object, int64_t index, int thread) = nullptr;
  };

  void Run(int64_t count, BodyRef body);
  void Claim(BodyRef body, int64_t count, int thread);
  void WorkerMain(int thread);

  std::atomic<int64_t> next_index_{0};

  std::mutex mutex_;
  std::condition_variable loop_started_;
  std::condition_variable loop_finished_;
  // All below guarded by mutex_.
  uint64_t loop_number_ = 0;
  BodyRef body_;
  int64_t count_ = 0;
  int participants_ = 0;  // threads 0 .. participants_ - 1 take part in this loop
  int working_ = 0;       // participants other than the caller that have not finished
  bool stopping_ = false;

  std::vector<std::thread> workers_;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_THREAD_TEAM_H_
