// Decoding's products by the kernel of cards before and after Hopper, on whatever card there is.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/step_product.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/forward_case.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::cuda::DeviceTraits;
using kernels::cuda::RunStepProducts;
using kernels::cuda::StepProduct;

constexpr DeviceTraits kPortable = {8, 0, 132, 0};

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float x : values) bits.push_back(Bf16Bits(x));
  return bits;
}

// Values that bf16 has.
std::vector<float> Normal(Random* random, int64_t count, double scale = 1.0) {
  std::vector<float> values = random->NormalVector(count, scale);
  for (float& x : values) x = FromBf16Bits(Bf16Bits(x));
  return values;
}

struct Operands {
  std::vector<float> x, w, bias, before;
  DeviceMemory x_rows, w_rows, bias_device;

  Operands(int64_t rows, int64_t out, int64_t in, Random* random)
      : x(Normal(random, rows * in)),
        w(Normal(random, out * in, 0.1)),
        bias(Normal(random, out)),
        before(Normal(random, rows * out)),
        x_rows(ToBf16(x)),
        w_rows(ToBf16(w)),
        bias_device(bias) {}

  StepProduct Product(int64_t out, int64_t in, void* y) const {
    StepProduct product;
    product.w = w_rows.as<__nv_bfloat16>();
    product.out_features = out;
    product.in_features = in;
    product.x = {x_rows.as<__nv_bfloat16>(), in, true};
    product.bias = bias_device.as<float>();
    product.y = y;
    product.y_stride = out;
    product.accumulate = true;
    return product;
  }
};

void RunOn(const StepProduct& product, int64_t rows) {
  const kernels::Status status = RunStepProducts({&product, 1}, rows, kPortable, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  CheckCuda(cudaDeviceSynchronize());
}

TEST(StepPortableTest, ValuesAndTheirBitsInEveryBatch) {
  if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  Random random(8);
  for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 8}, {257, 264}, {136, 2048}, {33, 5632}, {2048, 128}}) {
    constexpr int64_t kRows = 20;
    const Operands operands(kRows, out, in, &random);
    const DeviceMemory y(ToBf16(operands.before));
    RunOn(operands.Product(out, in, y.as<void>()), kRows);
    const std::vector<uint16_t> whole = y.Read<uint16_t>();
    std::vector<float> values;
    for (uint16_t bits : whole) values.push_back(FromBf16Bits(bits));
    EXPECT_LE(RelativeError(values, MatMulReference(operands.x, operands.w, operands.bias,
                                                    operands.before, kRows, out, in)),
              3e-3)
        << "[" << out << ", " << in << "]";
    for (int64_t rows = 1; rows < kRows; ++rows) {
      const int64_t first = kRows - rows;
      const DeviceMemory part(
          ToBf16({operands.before.begin() + first * out, operands.before.end()}));
      StepProduct product = operands.Product(out, in, part.as<void>());
      product.x.rows += first * in;
      RunOn(product, rows);
      EXPECT_EQ(part.Read<uint16_t>(),
                std::vector<uint16_t>(whole.begin() + first * out, whole.end()))
          << "[" << out << ", " << in << "] rows " << rows;
    }
  }
}

}  // namespace
}  // namespace deltafill::test
