#include "client/device_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltafill::client {
namespace {

using testing::HasSubstr;

ComputeOptions Options(const char* device, const char* dtype = "", const char* isa = "") {
  ComputeOptions options;
  options.device = device;
  options.compute_dtype = dtype;
  options.isa = isa;
  return options;
}

std::string Refusal(const ComputeOptions& options) {
  const auto devices = ParseDevices(options);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kInvalidArgument) << options.device;
  return std::string(devices.status().message());
}

TEST(DeviceOptionTest, TheCpuHasBothDtypes) {
  const auto plain = ParseDevices(ComputeOptions());
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_EQ(plain->size(), 1u);
  EXPECT_EQ(plain->front().name, "cpu");
  EXPECT_FALSE(plain->front().is_cuda);
  EXPECT_EQ(plain->front().backend.compute_dtype, kernels::DType::kF32);
  const auto bf16 = ParseDevices(Options("cpu", "bf16", "avx512"));
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  EXPECT_EQ(bf16->front().backend.compute_dtype, kernels::DType::kBF16);
  EXPECT_EQ(bf16->front().backend.isa, "avx512");
}

TEST(DeviceOptionTest, GpusByNumber) {
  for (const char* dtype : {"", "bf16"}) {
    const auto first = ParseDevices(Options("cuda", dtype));
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_EQ(first->size(), 1u);
    EXPECT_EQ(first->front().name, "cuda:0");
    EXPECT_TRUE(first->front().is_cuda);
    EXPECT_EQ(first->front().backend.compute_dtype, kernels::DType::kBF16);
  }
  const auto several = ParseDevices(Options("cuda:3,0"));
  ASSERT_TRUE(several.ok()) << several.status();
  ASSERT_EQ(several->size(), 2u);
  EXPECT_EQ((*several)[0].name, "cuda:3");
  EXPECT_EQ((*several)[0].backend.device, 3);
  EXPECT_EQ((*several)[1].backend.device, 0);
}

TEST(DeviceOptionTest, RefusalsNameTheOptions) {
  for (const char* device : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:0,", "cuda:256",
                             "cuda:99999999999999999999", "cpu:0"}) {
    EXPECT_THAT(Refusal(Options(device)), HasSubstr("--device: '")) << device;
  }
  EXPECT_THAT(Refusal(Options("cuda:1,0,1")), HasSubstr("names GPU 1 twice"));
  EXPECT_EQ(Refusal(Options("cuda:0", "f32")),
            "--dtype f32: --device cuda:0 computes in bf16 only");
  EXPECT_EQ(Refusal(Options("cuda", "", "avx2")), "--isa avx2: is the CPU's, and --device is cuda");
}

}  // namespace
}  // namespace deltafill::client
