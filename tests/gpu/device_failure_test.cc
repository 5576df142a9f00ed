// What a kernel that faults leaves of a device: nothing, for the rest of the process. So this test
// has a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/gpu/backend_fixture.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using testing::HasSubstr;

using DeviceFailureTest = CudaBackendTest;

TEST_F(DeviceFailureTest, AFaultIsWhatEveryCallAnswersFromThenOn) {
  std::unique_ptr<kernels::Operators> other;
  Must(backend_->NewOperators(1, &other));
  Must(backend_->CheckDevice());
  // Above every address of a process, so that neither the host's memory nor a card's is there.
  void* const nowhere = reinterpret_cast<void*>(uintptr_t{1} << 47);
  constexpr int64_t kWidth = 256;
  const kernels::SwiGluParams params = {.gate = {nowhere, DType::kBF16, kWidth},
                                        .up = {nowhere, DType::kBF16, kWidth},
                                        .y = {nowhere, DType::kBF16, kWidth},
                                        .rows = 64,
                                        .width = kWidth};
  Must(lane_->SwiGlu(params));
  const kernels::Status fault = lane_->Synchronize();
  EXPECT_EQ(fault.code(), kernels::StatusCode::kInternal);
  EXPECT_THAT(fault.message(), HasSubstr("cudaError"));
  EXPECT_EQ(lane_->SwiGlu(params).message(), fault.message());
  for (int i = 0; i < 2; ++i) {
    const kernels::Status device = backend_->CheckDevice();
    EXPECT_EQ(device.code(), kernels::StatusCode::kInternal);
    EXPECT_THAT(device.message(), HasSubstr("cudaError"));
  }
  EXPECT_FALSE(other->Synchronize().ok());
  void* memory = nullptr;
  EXPECT_FALSE(backend_->Allocate(1024, &memory).ok());
}

}  // namespace
}  // namespace deltafill::test
