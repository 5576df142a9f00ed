#include "tests/testing/fake_device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tests/testing/fake_device_lane.h"

namespace deltafill::test {
namespace {

using kernels::Status;

constexpr size_t kTotalBytes = size_t{1} << 40;

class FakeDevice final : public kernels::Backend {
 public:
  explicit FakeDevice(std::unique_ptr<kernels::Backend> cpu) : cpu_(std::move(cpu)) {}

  // The CPU's, for the bits are.
  const std::string& numerics() const override { return cpu_->numerics(); }
  kernels::DType activation_dtype() const override { return cpu_->activation_dtype(); }
  bool is_host_memory() const override { return false; }

  Status NewOperators(int threads, std::unique_ptr<kernels::Operators>* out) override {
    std::unique_ptr<kernels::Operators> operators;
    if (Status s = cpu_->NewOperators(threads, &operators); !s.ok()) return s;
    *out = std::make_unique<FakeDeviceLane>(std::move(operators), failure_);
    return {};
  }

  Status CheckDevice() override { return failure_->Get(); }
  void Break(const std::string& why) { failure_->Set({kernels::StatusCode::kInternal, why}); }

  Status Allocate(size_t bytes, void** out) override {
    if (Status s = failure_->Get(); !s.ok()) return s;
    if (Status s = cpu_->Allocate(bytes, out); !s.ok()) return s;
    std::memset(*out, 0xAB, bytes);  // nobody may count on zeros
    const std::lock_guard lock(mutex_);
    sizes_[*out] = bytes;
    used_bytes_ += bytes;
    held_bytes_ = std::max(held_bytes_, used_bytes_);
    *out = static_cast<std::byte*>(*out) + kDeviceAddressBit;
    return {};
  }
  void Free(void* buffer) override {
    if (buffer == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      const auto size = sizes_.extract(BehindAddress(buffer));
      used_bytes_ -= size.mapped();
    }
    cpu_->Free(BehindAddress(buffer));
  }
  Status AllocateHost(size_t bytes, void** out) override {
    ++host_allocations_;
    return kernels::Backend::AllocateHost(bytes, out);
  }
  int64_t host_allocations() const { return host_allocations_; }
  Status ReserveMemory(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    held_bytes_ = std::max(held_bytes_, bytes);
    return {};
  }
  Status ReadMemory(kernels::MemoryReport* out) override {
    const std::lock_guard lock(mutex_);
    *out = {kTotalBytes - held_bytes_, kTotalBytes, held_bytes_};
    return {};
  }

  Status NewWeight(const void* host_data, kernels::DType dtype, int64_t out_features,
                   int64_t in_features, std::unique_ptr<kernels::Weight>* out) override {
    return cpu_->NewWeight(host_data, dtype, out_features, in_features, out);
  }
  Status NewLatentProjection(const void* host_data, kernels::DType dtype,
                             const kernels::LatentShape& shape,
                             std::unique_ptr<kernels::LatentProjection>* out) override {
    return cpu_->NewLatentProjection(host_data, dtype, shape, out);
  }

 private:
  const std::unique_ptr<kernels::Backend> cpu_;
  const std::shared_ptr<DeviceFailure> failure_ = std::make_shared<DeviceFailure>();
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<void*, size_t> sizes_;
  std::atomic<int64_t> host_allocations_ = 0;
  size_t used_bytes_ = 0;
  size_t held_bytes_ = 0;
};

}  // namespace

std::unique_ptr<kernels::Backend> NewFakeDevice(const kernels::BackendOptions& options) {
  std::unique_ptr<kernels::Backend> cpu;
  const Status status = kernels::NewCpuBackend(options, &cpu);
  if (!status.ok()) std::abort();
  return std::make_unique<FakeDevice>(std::move(cpu));
}

void BreakDevice(kernels::Backend& device, const std::string& why) {
  dynamic_cast<FakeDevice&>(device).Break(why);
}

int64_t HostAllocations(kernels::Backend& device) {
  return dynamic_cast<FakeDevice&>(device).host_allocations();
}

void IssueOnLane(kernels::Operators& lane, std::function<void()> work) {
  auto* const device_lane = dynamic_cast<FakeDeviceLane*>(&lane);
  if (device_lane == nullptr) return work();
  (void)device_lane->Issue([work = std::move(work)](auto) {
    work();
    return Status();
  });
}

bool TestsUseDevice() {
  const char* memory = std::getenv("DELTAFILL_TEST_MEMORY");
  return memory != nullptr && std::string_view(memory) == "device";
}

}  // namespace deltafill::test
