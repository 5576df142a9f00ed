#include "worker/exchange/device_path.h"

#include <utility>

#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

constexpr std::chrono::milliseconds kEndPoll{20};
// Receivers that refuse do so at once: then nothing is opened here for nothing.
constexpr std::chrono::milliseconds kRefusalWait{50};

}  // namespace

DevicePath::DevicePath(std::shared_ptr<DeviceTransport> transport,
                       std::chrono::milliseconds open_timeout)
    : transport_(std::move(transport)), open_timeout_(open_timeout) {}

absl::StatusOr<std::optional<DeviceOffer>> DevicePath::Offer() {
  if (transport_ == nullptr || refused_ || failures_ >= kFailuresMax) return std::nullopt;
  {
    std::lock_guard lock(mutex_);
    answer_.reset();
  }
  DELTAFILL_TRY(transport_->NewLinkId(&id_));
  return DeviceOffer{id_, transport_->card()};
}

void DevicePath::SetAnswer(absl::Status answer) {
  {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  answered_.notify_all();
}

bool DevicePath::HasRefused() {
  std::lock_guard lock(mutex_);
  return answer_.has_value() && !answer_->ok();
}

absl::StatusOr<std::unique_ptr<DeviceLink>> DevicePath::Open(const StopAsked& ended) {
  const auto deadline = std::chrono::steady_clock::now() + open_timeout_;
  const StopAsked stop = [&] { return ended() || HasRefused(); };
  std::unique_lock lock(mutex_);
  answered_.wait_for(lock, kRefusalWait, [this] { return answer_.has_value(); });
  std::unique_ptr<DeviceLink> link;
  kernels::Status opened;
  if (!answer_.has_value() || answer_->ok()) {
    lock.unlock();
    opened = transport_->Open(id_, LinkEnd::kSender, open_timeout_, stop, &link);
    lock.lock();
  }
  while (opened.ok() && !answer_.has_value() && std::chrono::steady_clock::now() < deadline) {
    lock.unlock();
    if (ended()) return absl::InternalError("the stream ended");
    lock.lock();
    answered_.wait_for(lock, kEndPoll, [this] { return answer_.has_value(); });
  }
  if (answer_.has_value() && !answer_->ok()) {
    refused_ = absl::IsFailedPrecondition(*answer_);
    return *answer_;
  }
  DELTAFILL_TRY(opened);
  if (!answer_.has_value()) return absl::InternalError("no answer from the receiver in time");
  return link;
}

}  // namespace deltafill::worker
