// Short convolution and norms on the device against plain float64 loops.
#include "kernels/cuda/row_operators.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/forward_case.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;

class RowOperatorsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

std::vector<uint16_t> ToBits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float x : values) bits.push_back(Bf16Bits(x));
  return bits;
}

std::vector<float> FromBits(const std::vector<uint16_t>& bits) {
  std::vector<float> values;
  for (uint16_t b : bits) values.push_back(FromBf16Bits(b));
  return values;
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST_F(RowOperatorsTest, ShortConvAndTails) {
  Random random(3);
  const int64_t channels = 264;
  const std::vector<int64_t> offsets = {0, 1, 1, 3, 36, 136, 140};
  const int64_t rows = offsets.back();
  std::vector<float> x = random.NormalVector(rows * channels);
  RoundAllToBf16(&x);
  const std::vector<float> weight = random.NormalVector(channels * 4, 0.5);
  const DeviceMemory x_device(ToBits(x)), weight_device(weight), y(rows * channels * 2);
  std::vector<std::vector<float>> tails;
  std::vector<DeviceMemory> tails_device;
  std::vector<const float*> tails_in;
  std::vector<float*> tails_out;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    tails.push_back(random.NormalVector(channels * 3));
    tails_device.emplace_back(tails.back());
    tails_in.push_back(i == 3 ? nullptr : tails_device.back().as<float>());
    tails_out.push_back(tails_device.back().as<float>());
    if (i == 3) std::fill(tails[i].begin(), tails[i].end(), 0.0f);
  }
  kernels::ShortConvParams params;
  params.x = {x_device.as<void>(), DType::kBF16, channels};
  params.weight = weight_device.as<float>();
  params.offsets = offsets;
  params.tails_in = tails_in.data();
  params.tails_out = tails_out.data();
  params.y = {y.as<void>(), DType::kBF16, channels};
  params.channels = channels;
  kernels::cuda::DeviceBuffer descriptions;
  params.weight = weight_device.as<float>() + 1;
  kernels::Status status = kernels::cuda::ShortConv(params, &descriptions, nullptr);
  EXPECT_NE(status.message().find("weight"), std::string::npos) << status.message();
  params.weight = weight_device.as<float>();
  status = kernels::cuda::ShortConv(params, &descriptions, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  CheckCuda(cudaDeviceSynchronize());
  std::vector<double> expected(rows * channels);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t length = offsets[s + 1] - offsets[s];
    auto at = [&](int64_t row, int64_t c) -> double {
      return row >= 0 ? x[(offsets[s] + row) * channels + c] : tails[s][c * 3 + 3 + row];
    };
    const std::vector<float> tail = tails_device[s].Read<float>();
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t row = 0; row < length; ++row) {
        double sum = 0.0;
        for (int j = 0; j < 4; ++j) sum += double{weight[c * 4 + j]} * at(row - 3 + j, c);
        expected[(offsets[s] + row) * channels + c] = sum * Sigmoid(sum);
      }
      for (int j = 0; j < 3; ++j) EXPECT_EQ(tail[c * 3 + j], at(length - 3 + j, c)) << s;
    }
  }
  EXPECT_LE(RelativeError(FromBits(y.Read<uint16_t>()), expected), 3e-3);
}

TEST_F(RowOperatorsTest, ConvTailAtACheckpoint) {
  Random random(4);
  std::vector<float> x = random.NormalVector(5 * 40);
  RoundAllToBf16(&x);
  const std::vector<float> tail = random.NormalVector(40 * 3);
  const DeviceMemory x_device(ToBits(x)), tail_device(tail), out(40 * 3 * 4);
  for (int64_t tokens : {0, 1, 2, 3, 5}) {
    kernels::ConvTailParams params{{x_device.as<void>(), DType::kBF16, 40},
                                   tokens,
                                   tail_device.as<float>(),
                                   out.as<float>(),
                                   40};
    ASSERT_TRUE(kernels::cuda::ConvTail(params, nullptr).ok());
    CheckCuda(cudaDeviceSynchronize());
    const std::vector<float> got = out.Read<float>();
    for (int64_t c = 0; c < 40; ++c) {
      for (int64_t j = 0; j < 3; ++j) {
        const int64_t row = tokens - 3 + j;
        EXPECT_EQ(got[c * 3 + j], row >= 0 ? x[row * 40 + c] : tail[c * 3 + 3 + row]);
      }
    }
  }
}

TEST_F(RowOperatorsTest, RmsNorm) {
  Random random(6);
  for (int64_t width : {8, 24, 64, 128, 136, 512, 1000, 2048, 2304, 4096, 8192}) {
    for (bool gated : {false, true}) {
      const int64_t rows = 37, groups = width <= 128 ? 3 : 1, stride = groups * width + 8;
      std::vector<float> x = random.NormalVector(rows * stride);
      std::vector<float> gate = random.NormalVector(rows * stride);
      RoundAllToBf16(&x);
      RoundAllToBf16(&gate);
      const std::vector<float> weight = random.NormalVector(width, 0.3, 1.0);
      const DeviceMemory x_device(ToBits(x)), gate_device(ToBits(gate)), weight_device(weight);
      kernels::RmsNormParams params;
      params.x = {x_device.as<void>(), DType::kBF16, stride};
      if (gated) params.gate = {gate_device.as<void>(), DType::kBF16, stride};
      params.y = {x_device.as<void>(), DType::kBF16, stride};  // in place
      params.weight = weight_device.as<float>();
      params.rows = rows;
      params.groups = groups;
      params.width = width;
      const kernels::Status status = kernels::cuda::RmsNorm(params, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      CheckCuda(cudaDeviceSynchronize());
      std::vector<double> expected(x.begin(), x.end());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t group = 0; group < groups; ++group) {
          const int64_t first = row * stride + group * width;
          double squares = 0.0;
          for (int64_t i = 0; i < width; ++i) squares += double{x[first + i]} * x[first + i];
          const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
          for (int64_t i = 0; i < width; ++i) {
            expected[first + i] =
                x[first + i] * factor * weight[i] * (gated ? Sigmoid(gate[first + i]) : 1.0);
          }
        }
      }
      EXPECT_LE(RelativeError(FromBits(x_device.Read<uint16_t>()), expected), 3e-3) << width;
    }
  }
}

}  // namespace
}  // namespace deltafill::test
