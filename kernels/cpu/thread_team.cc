#include "kernels/cpu/thread_team.h"

#include <algorithm>
#include <system_error>

namespace deltafill::kernels::cpu {

ThreadTeam::ThreadTeam(int threads) {
  workers_.reserve(static_cast<size_t>(std::max(threads - 1, 0)));
  for (int thread = 1; thread < threads; ++thread) {
    try {
      workers_.emplace_back([this, thread] { WorkerMain(thread); });
    } catch (const std::system_error&) {
      break;  // A smaller team computes the same bits.
    }
  }
}

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  loop_started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::Claim(BodyRef body, int64_t count, int thread) {
  for (;;) {
    const int64_t index = next_index_.fetch_add(1, std::memory_order_relaxed);
    if (index >= count) return;
    body.call(body.object, index, thread);
  }
}

void ThreadTeam::Run(int64_t count, BodyRef body) {
  if (count <= 0) return;
  const int participants = static_cast<int>(std::min<int64_t>(threads(), count));
  if (participants == 1) {
    for (int64_t index = 0; index < count; ++index) body.call(body.object, index, 0);
    return;
  }
  {
    // The lock orders this reset before any worker's first claim; workers of the loop before have
    // all reported in, so nobody claims from the old loop any more.
    std::lock_guard lock(mutex_);
    next_index_.store(0, std::memory_order_relaxed);
    body_ = body;
    count_ = count;
    participants_ = participants;
    working_ = participants - 1;
    ++loop_number_;
  }
  loop_started_.notify_all();
  Claim(body, count, 0);
  std::unique_lock lock(mutex_);
  loop_finished_.wait(lock, [this] { return working_ == 0; });
}

void ThreadTeam::WorkerMain(int thread) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    loop_started_.wait(lock, [&] { return stopping_ || loop_number_ != seen; });
    if (stopping_) return;
    seen = loop_number_;
    if (thread >= participants_) continue;
    const BodyRef body = body_;
    const int64_t count = count_;
    lock.unlock();
    Claim(body, count, thread);
    lock.lock();
    if (--working_ == 0) loop_finished_.notify_one();
  }
}

}  // namespace deltafill::kernels::cpu
