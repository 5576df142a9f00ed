#include "worker/runtime/hand_over.h"

#include <optional>
#include <utility>

#include "worker/model/status_steps.h"

namespace deltafill::worker {

HandOver::HandOver(BoundaryExchange* exchange) : exchange_(exchange), thread_([this] { Main(); }) {}

HandOver::~HandOver() {
  queue_.CloseAndClear();
  thread_.join();
}

void HandOver::Push(State state) {
  {
    std::lock_guard lock(mutex_);
    ++unpublished_;
  }
  queue_.Push(std::move(state));
}

absl::Status HandOver::Publish(State& state) {
  DELTAFILL_TRY(state.written->Wait());
  if (state.flag->aborted()) return absl::CancelledError("aborted");
  return exchange_->Publish(state.address, state.view, {&state.next, 1});
}

void HandOver::Main() {
  while (std::optional<State> state = queue_.Pop()) {
    absl::Status result = status();
    if (result.ok()) result = Publish(*state);
    state.reset();
    {
      std::lock_guard lock(mutex_);
      --unpublished_;
      status_.Update(result);
    }
    changed_.notify_all();
  }
}

absl::Status HandOver::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

absl::Status HandOver::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return unpublished_ == 0; });
  return std::exchange(status_, absl::OkStatus());
}

}  // namespace deltafill::worker
