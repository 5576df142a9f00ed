// Keeps the events that lanes emit, and waits for them.
#ifndef DELTAFILL_TESTS_TESTING_RECORDING_SINK_H_
#define DELTAFILL_TESTS_TESTING_RECORDING_SINK_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <variant>
#include <vector>

#include "worker/runtime/events.h"

namespace deltafill::test {

class RecordingSink : public worker::EventSink {
 public:
  void Emit(worker::WorkerEvent event) override {
    {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_all();
  }

  std::vector<worker::WorkerEvent> All() const {
    std::lock_guard lock(mutex_);
    return events_;
  }

  template <typename Event>
  std::vector<Event> Of() const {
    std::lock_guard lock(mutex_);
    return OfLocked<Event>();
  }

  // True once there are `count` events of the kind; false after ten seconds.
  template <typename Event>
  bool WaitFor(size_t count = 1) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10),
                             [&] { return OfLocked<Event>().size() >= count; });
  }

 private:
  template <typename Event>
  std::vector<Event> OfLocked() const {
    std::vector<Event> found;
    for (const worker::WorkerEvent& event : events_) {
      if (const Event* match = std::get_if<Event>(&event)) found.push_back(*match);
    }
    return found;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<worker::WorkerEvent> events_;  // guarded by mutex_
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_RECORDING_SINK_H_
