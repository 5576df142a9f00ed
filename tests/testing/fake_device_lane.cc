#include "tests/testing/fake_device_lane.h"

#include <atomic>
#include <string>
#include <utility>

#include "tests/testing/fake_device.h"

namespace deltafill::test {
namespace {

using kernels::Status;
using kernels::StatusCode;

std::atomic<int64_t> replays_run{0};

}  // namespace

int64_t ReplaysRun() { return replays_run.load(); }

CallQueue::CallQueue(std::shared_ptr<DeviceFailure> failure)
    : failure_(std::move(failure)), thread_([this] { Main(); }) {}

CallQueue::~CallQueue() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CallQueue::Push(FakeDeviceCall call, std::vector<uint32_t> tokens) {
  {
    std::lock_guard lock(mutex_);
    calls_.push_back({std::move(call), std::move(tokens)});
    ++pushed_;
  }
  changed_.notify_all();
}

uint64_t CallQueue::pushed() const {
  std::lock_guard lock(mutex_);
  return pushed_;
}

void CallQueue::Main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || !calls_.empty(); });
    if (calls_.empty()) return;
    Entry entry = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    Status status = failure_->Get();
    if (status.ok()) status = entry.call(entry.tokens);
    entry = {};
    failure_->Set(status);
    lock.lock();
    ++run_;
    changed_.notify_all();
  }
}

Status CallQueue::WaitFor(uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return run_ >= count; });
  return failure_->Get();
}

Status CallQueue::WaitForAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return run_ == pushed_; });
  return failure_->Get();
}

struct FakeDeviceLane::Recorded final : kernels::Recording {
  std::vector<FakeDeviceCall> calls;
};

FakeDeviceLane::FakeDeviceLane(std::unique_ptr<kernels::Operators> cpu,
                               std::shared_ptr<DeviceFailure> failure)
    : cpu_(std::move(cpu)), failure_(failure), queue_(std::make_shared<CallQueue>(failure)) {}

// Points may still hold the queue.
FakeDeviceLane::~FakeDeviceLane() { (void)queue_->WaitForAll(); }

Status FakeDeviceLane::Issue(FakeDeviceCall call) {
  if (Status s = failure_->Get(); !s.ok()) return s;
  if (recording_ != nullptr) {
    recording_->calls.push_back(std::move(call));
  } else {
    queue_->Push(std::move(call));
  }
  return {};
}

Status FakeDeviceLane::RefuseInRecording(const char* what) const {
  if (recording_ == nullptr) return {};
  return {StatusCode::kUnsupported, std::string(what) + ": cannot be recorded"};
}

Status FakeDeviceLane::Synchronize() {
  if (Status s = RefuseInRecording("Synchronize"); !s.ok()) return s;
  return queue_->WaitForAll();
}

Status FakeDeviceLane::Mark(std::unique_ptr<kernels::LanePoint>* point) {
  struct QueuePoint final : kernels::LanePoint {
    Status Wait() override { return queue->WaitFor(count); }
    std::shared_ptr<CallQueue> queue;
    uint64_t count = 0;
  };
  if (Status s = RefuseInRecording("Mark"); !s.ok()) return s;
  auto marked = std::make_unique<QueuePoint>();
  marked->queue = queue_;
  marked->count = queue_->pushed();
  *point = std::move(marked);
  return {};
}

Status FakeDeviceLane::BeginRecording() {
  if (recording_ != nullptr) return {StatusCode::kInvalidArgument, "a recording is under way"};
  recording_ = std::make_unique<Recorded>();
  return {};
}

Status FakeDeviceLane::EndRecording(std::unique_ptr<kernels::Recording>* out) {
  if (recording_ == nullptr) return {StatusCode::kInvalidArgument, "no recording is under way"};
  *out = std::move(recording_);
  return {};
}

Status FakeDeviceLane::Replay(kernels::Recording& recording, std::span<const uint32_t> tokens) {
  if (Status s = RefuseInRecording("Replay"); !s.ok()) return s;
  if (Status s = failure_->Get(); !s.ok()) return s;
  replays_run.fetch_add(1);
  for (const FakeDeviceCall& call : dynamic_cast<Recorded&>(recording).calls) {
    queue_->Push(call, {tokens.begin(), tokens.end()});
  }
  return {};
}

}  // namespace deltafill::test
