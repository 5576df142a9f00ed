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
  RoundAllToBf16(&values);
  return values;
}

// What a product starts from and how its rows lie.
struct Form {
  bool aligned;  // x, or else rows one element off that no vector fits
  bool adds;     // a bias, and y itself
  bool y_is_f32;
};

struct Operands {
  Form form;
  int64_t x_stride;
  std::vector<float> x, w, bias, before;
  DeviceMemory x_rows, w_rows, bias_device;

  Operands(Form form, int64_t rows, int64_t out, int64_t in, Random* random)
      : form(form),
        x_stride(form.aligned ? in : in + 3),
        x(Normal(random, rows * in)),
        w(Normal(random, out * in, 0.1)),
        bias(form.adds ? Normal(random, out) : std::vector<float>(out)),
        before(form.adds ? Normal(random, rows * out) : std::vector<float>(rows * out)),
        x_rows(Spread(x, rows, in, x_stride, form.aligned ? 0 : 1)),
        w_rows(ToBf16(w)),
        bias_device(bias) {}

  static std::vector<uint16_t> Spread(const std::vector<float>& x, int64_t rows, int64_t width,
                                      int64_t stride, int64_t offset) {
    std::vector<uint16_t> spread(offset + rows * stride);
    for (int64_t i = 0; i < rows * width; ++i) {
      spread[offset + i / width * stride + i % width] = Bf16Bits(x[i]);
    }
    return spread;
  }

  // Of the rows from `first` on.
  StepProduct Product(int64_t first, int64_t out, int64_t in, void* y) const {
    StepProduct product;
    product.w = w_rows.as<__nv_bfloat16>();
    product.out_features = out;
    product.in_features = in;
    product.x = {x_rows.as<__nv_bfloat16>() + (form.aligned ? 0 : 1) + first * x_stride, x_stride,
                 form.aligned};
    product.bias = form.adds ? bias_device.as<float>() : nullptr;
    product.y = y;
    product.y_stride = out;
    product.y_is_f32 = form.y_is_f32;
    product.accumulate = form.adds;
    return product;
  }

  // y of the rows from `first` on, exactly.
  std::vector<float> Run(int64_t first, int64_t rows, int64_t out, int64_t in) const {
    const std::vector<float> start(before.begin() + first * out,
                                   before.begin() + (first + rows) * out);
    const DeviceMemory y = form.y_is_f32 ? DeviceMemory(start) : DeviceMemory(ToBf16(start));
    const StepProduct product = Product(first, out, in, y.as<void>());
    const kernels::Status status = RunStepProducts({&product, 1}, rows, kPortable, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    CheckCuda(cudaDeviceSynchronize());
    return Values(y);
  }

  std::vector<float> Values(const DeviceMemory& y) const {
    if (form.y_is_f32) return y.Read<float>();
    std::vector<float> values;
    for (uint16_t bits : y.Read<uint16_t>()) values.push_back(FromBf16Bits(bits));
    return values;
  }
};

constexpr Form kForms[] = {{true, true, false}, {false, true, false}, {true, false, true}};

TEST(StepPortableTest, ValuesAndTheirBitsInEveryBatch) {
  if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  Random random(8);
  for (const Form& form : kForms) {
    for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 8}, {257, 264}, {136, 2048}, {33, 5632}, {2048, 128}}) {
      constexpr int64_t kRows = 20;
      const Operands operands(form, kRows, out, in, &random);
      const std::vector<float> whole = operands.Run(0, kRows, out, in);
      EXPECT_LE(RelativeError(whole, MatMulReference(operands.x, operands.w, operands.bias,
                                                     operands.before, kRows, out, in)),
                3e-3)
          << "[" << out << ", " << in << "]";
      for (int64_t rows = 1; rows < kRows; ++rows) {
        const int64_t first = kRows - rows;
        EXPECT_EQ(operands.Run(first, rows, out, in),
                  std::vector<float>(whole.begin() + first * out, whole.end()))
            << "[" << out << ", " << in << "] rows " << rows;
      }
    }
  }
}

TEST(StepPortableTest, ProductsOfOneCallHaveTheirOwnBits) {
  if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  Random random(9);
  constexpr int64_t kRows = 7, kIn = 264;
  constexpr int64_t kOuts[] = {257, 8, 136};
  std::vector<Operands> operands;
  for (int64_t out : kOuts) operands.emplace_back(kForms[0], kRows, out, kIn, &random);
  std::vector<DeviceMemory> ys;
  for (const Operands& o : operands) ys.emplace_back(ToBf16(o.before));
  std::vector<StepProduct> products;
  for (size_t i = 0; i < operands.size(); ++i) {
    products.push_back(operands[i].Product(0, kOuts[i], kIn, ys[i].as<void>()));
  }
  const kernels::Status status = RunStepProducts(products, kRows, kPortable, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  CheckCuda(cudaDeviceSynchronize());
  for (size_t i = 0; i < operands.size(); ++i) {
    EXPECT_EQ(operands[i].Values(ys[i]), operands[i].Run(0, kRows, kOuts[i], kIn)) << kOuts[i];
  }
}

}  // namespace
}  // namespace deltafill::test
