// A lane of a fake device: a queue of calls and the thread that runs them.
#ifndef DELTAFILL_TESTS_TESTING_FAKE_DEVICE_LANE_H_
#define DELTAFILL_TESTS_TESTING_FAKE_DEVICE_LANE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kernels/operators.h"

namespace deltafill::test {

// `tokens`: a replay's, or none.
using FakeDeviceCall = std::function<kernels::Status(std::span<const uint32_t> tokens)>;

// What a device answers once it has failed: for good, on every lane, as a CUDA device does.
// Thread-safe.
class DeviceFailure {
 public:
  void Set(const kernels::Status& failure) {  // the first one stays
    std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = failure;
  }
  kernels::Status Get() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  mutable std::mutex mutex_;
  kernels::Status failure_;
};

// Runs calls in order on a thread of its own, until one fails: then none any more.
class CallQueue {
 public:
  explicit CallQueue(std::shared_ptr<DeviceFailure> failure);
  ~CallQueue();  // runs what is left

  void Push(FakeDeviceCall call, std::vector<uint32_t> tokens = {});
  uint64_t pushed() const;
  // Until that many calls have run; the device's failure.
  kernels::Status WaitFor(uint64_t count);
  kernels::Status WaitForAll();

 private:
  struct Entry {
    FakeDeviceCall call;
    std::vector<uint32_t> tokens;
  };
  void Main();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Entry> calls_;
  uint64_t pushed_ = 0;
  uint64_t run_ = 0;
  bool closed_ = false;
  const std::shared_ptr<DeviceFailure> failure_;
  std::thread thread_;  // last
};

class FakeDeviceLane final : public kernels::Operators {
 public:
  FakeDeviceLane(std::unique_ptr<kernels::Operators> cpu, std::shared_ptr<DeviceFailure> failure);
  ~FakeDeviceLane() override;

  // Kept while a recording is under way, pushed otherwise; the device's failure if it has failed.
  kernels::Status Issue(FakeDeviceCall call);

  kernels::Status Embedding(const kernels::EmbeddingParams& params) override;
  kernels::Status MatMul(const kernels::MatMulParams& params) override;
  kernels::Status RmsNorm(const kernels::RmsNormParams& params) override;
  kernels::Status ShortConv(const kernels::ShortConvParams& params) override;
  kernels::Status ConvTail(const kernels::ConvTailParams& params) override;
  kernels::Status SwiGlu(const kernels::SwiGluParams& params) override;
  kernels::Status DeltaRuleForward(const kernels::DeltaRuleForwardParams& params) override;
  kernels::Status DeltaRuleSummary(const kernels::DeltaRuleSummaryParams& params) override;
  kernels::Status LatentAppend(const kernels::LatentAppendParams& params) override;
  kernels::Status LatentPrefill(const kernels::LatentPrefillParams& params) override;
  kernels::Status MixtureOfExperts(const kernels::MixtureParams& params) override;
  kernels::Status DeltaRuleStep(const kernels::DeltaRuleStepParams& params) override;
  kernels::Status LatentStep(const kernels::LatentStepParams& params) override;
  kernels::Status Synchronize() override;
  kernels::Status Mark(std::unique_ptr<kernels::LanePoint>* point) override;
  kernels::Status Copy(void* to, const void* from, size_t bytes) override;
  kernels::Status CopyFromHost(void* to, const void* host_from, size_t bytes) override;
  kernels::Status CopyToHost(void* host_to, const void* from, size_t bytes) override;
  kernels::Status FillZero(void* to, size_t bytes) override;
  kernels::Status BeginRecording() override;
  kernels::Status EndRecording(std::unique_ptr<kernels::Recording>* out) override;
  kernels::Status Replay(kernels::Recording& recording, std::span<const uint32_t> tokens) override;

 private:
  struct Recorded;
  kernels::Status RefuseInRecording(const char* what) const;

  // Used by the queue's thread only.
  const std::unique_ptr<kernels::Operators> cpu_;
  const std::shared_ptr<DeviceFailure> failure_;
  std::unique_ptr<Recorded> recording_;     // while calls are recorded
  const std::shared_ptr<CallQueue> queue_;  // last: its end runs what is left
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_FAKE_DEVICE_LANE_H_
