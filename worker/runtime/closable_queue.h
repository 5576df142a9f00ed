// A first-in first-out queue between threads that can be closed.
#ifndef DELTAFILL_WORKER_RUNTIME_CLOSABLE_QUEUE_H_
#define DELTAFILL_WORKER_RUNTIME_CLOSABLE_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace deltafill::worker {

// Thread-safe. Unbounded: what goes in is bounded by whoever gives the work.
template <typename T>
class ClosableQueue {
 public:
  // False, and the element is dropped, if the queue is closed.
  bool Push(T element) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      elements_.push_back(std::move(element));
    }
    changed_.notify_one();
    return true;
  }

  // Blocks for an element; nullopt once the queue is closed and empty.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !elements_.empty(); });
    return Take();
  }

  // As Pop, but nullopt also when the time is up.
  std::optional<T> PopUntil(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return closed_ || !elements_.empty(); });
    return Take();
  }

  std::optional<T> TryPop() {
    std::lock_guard lock(mutex_);
    return Take();
  }

  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  // Closes, and drops what is left.
  void CloseAndClear() {
    std::deque<T> dropped;  // destroyed without the lock
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      dropped.swap(elements_);
    }
    changed_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::optional<T> Take() {
    if (elements_.empty()) return std::nullopt;
    std::optional<T> element(std::move(elements_.front()));
    elements_.pop_front();
    return element;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> elements_;  // guarded by mutex_
  bool closed_ = false;     // guarded by mutex_
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_CLOSABLE_QUEUE_H_
