#include "tests/testing/fake_device.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tests/testing/fake_device_lane.h"

namespace deltafill::test {
namespace {

using kernels::Status;

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
    *out = std::make_unique<FakeDeviceLane>(std::move(operators));
    return {};
  }

  Status Allocate(size_t bytes, void** out) override {
    if (Status s = cpu_->Allocate(bytes, out); !s.ok()) return s;
    std::memset(*out, 0xAB, bytes);  // nobody may count on zeros
    *out = static_cast<std::byte*>(*out) + kDeviceAddressBit;
    return {};
  }
  void Free(void* buffer) override { cpu_->Free(BehindAddress(buffer)); }

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
};

}  // namespace

std::unique_ptr<kernels::Backend> NewFakeDevice(const kernels::BackendOptions& options) {
  std::unique_ptr<kernels::Backend> cpu;
  const Status status = kernels::NewCpuBackend(options, &cpu);
  if (!status.ok()) std::abort();
  return std::make_unique<FakeDevice>(std::move(cpu));
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
