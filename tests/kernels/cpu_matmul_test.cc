#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/random.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::Random;

struct Shape {
  int64_t out = 0;
  int64_t in = 0;
};
// One column, one input, tile edges (512), odd sizes, and sizes of real models.
constexpr Shape kShapes[] = {{1, 1},     {1, 300},   {3, 1},      {32, 256},  {128, 128},
                             {129, 385}, {511, 64},  {512, 1000}, {513, 97},  {600, 129},
                             {64, 2304}, {1024, 40}, {1025, 768}, {100, 4100}};

// The parameter: as a decoding step.
class CpuMatMulTest : public CpuBackendTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::vector<float> Multiply(const Weight& weight, std::span<const float> x, int64_t rows,
                              int threads, std::span<const float> bias = {},
                              std::span<const float> y_before = {}, int64_t padding = 0) {
    PlacedRows placed_x(x, rows, weight.in_features(), padding, padding);
    PlacedRows y(rows, weight.out_features(), padding, padding);
    if (!y_before.empty()) y = PlacedRows(y_before, rows, weight.out_features(), padding, padding);
    const Status status = Lane(threads)->MatMul({.x = placed_x,
                                                 .weight = &weight,
                                                 .bias = bias.empty() ? nullptr : bias.data(),
                                                 .y = y,
                                                 .rows = rows,
                                                 .accumulate = !y_before.empty(),
                                                 .step = GetParam()});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.SurroundingsIntact());
    return y.Dense();
  }
};

TEST_P(CpuMatMulTest, MatchesFloat64) {
  Random random(1);
  for (const Shape& shape : kShapes) {
    const int64_t rows = random.Integer(1, 140);
    const auto w = random.NormalVector(shape.out * shape.in, 0.05);
    const auto x = random.NormalVector(rows * shape.in);
    const auto bias = random.NormalVector(shape.out);
    const auto before = random.NormalVector(rows * shape.out);
    const auto weight = NewWeight(w, shape.out, shape.in);
    const auto expect = [&](std::span<const float> y, std::span<const float> b,
                            std::span<const float> y_before) {
      const auto expected = test::MatMulReference(x, w, b, y_before, rows, shape.out, shape.in);
      EXPECT_LE(test::RelativeError(y, expected), 2e-6)
          << rows << " rows, out " << shape.out << ", in " << shape.in;
    };
    expect(Multiply(*weight, x, rows, 2), {}, {});
    expect(Multiply(*weight, x, rows, 1, bias), bias, {});
    expect(Multiply(*weight, x, rows, 3, bias, before, 5), bias, before);
  }
}

TEST_P(CpuMatMulTest, BitsOfARowDependOnNothingElse) {
  Random random(2);
  for (const Shape& shape : kShapes) {
    const auto w = random.NormalVector(shape.out * shape.in, 0.05);
    const auto x = random.NormalVector(kInvarianceRows * shape.in);
    const auto bias = random.NormalVector(shape.out);
    const auto before = random.NormalVector(kInvarianceRows * shape.out);
    const auto weight = NewWeight(w, shape.out, shape.in);
    const auto all = Multiply(*weight, x, kInvarianceRows, 1, bias, before);
    int threads = 1;
    for (const RowRun& run : kRowRuns) {
      threads = threads % 4 + 1;
      const auto y = Multiply(*weight, Slice(x, run.begin, run.rows, shape.in), run.rows, threads,
                              bias, Slice(before, run.begin, run.rows, shape.out), threads - 1);
      EXPECT_EQ(ByteDifference(y, Slice(all, run.begin, run.rows, shape.out)), "")
          << "rows " << run.begin << " + " << run.rows << ", out " << shape.out << ", in "
          << shape.in << ", threads " << threads;
    }
  }
}

TEST_P(CpuMatMulTest, AccumulatingIsTheProductAddedExactly) {
  Random random(3);
  const auto w = random.NormalVector(70 * 300);
  const auto x = random.NormalVector(80 * 300);
  const auto before = random.NormalVector(80 * 70);
  const auto weight = NewWeight(w, 70, 300);
  auto expected = Multiply(*weight, x, 80, 1);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
  EXPECT_EQ(ByteDifference(Multiply(*weight, x, 80, 2, {}, before), expected), "");
}

// A neighbour's NaN must stay in its own row: panels share library calls, never sums.
TEST_P(CpuMatMulTest, NonFiniteRowsStayAlone) {
  Random random(4);
  const auto weight = NewWeight(random.NormalVector(40 * 65), 40, 65);
  auto x = random.NormalVector(100 * 65);
  const auto clean = Multiply(*weight, x, 100, 1);
  x[50 * 65 + 3] = std::numeric_limits<float>::quiet_NaN();
  x[51 * 65 + 64] = std::numeric_limits<float>::infinity();
  const auto y = Multiply(*weight, x, 100, 2);
  for (int64_t row = 0; row < 100; ++row) {
    const auto actual = Slice(y, row, 1, 40);
    if (row == 50 || row == 51) {
      EXPECT_FALSE(test::AllFinite(actual));
    } else {
      EXPECT_EQ(ByteDifference(actual, Slice(clean, row, 1, 40)), "") << row;
    }
  }
}

TEST_P(CpuMatMulTest, LargeAndTinyValuesStayFinite) {
  for (float scale : {1e-30f, 1e-18f, 1e17f}) {
    Random random(5);
    const auto w = random.NormalVector(33 * 100);
    auto x = random.NormalVector(10 * 100, scale);
    const auto weight = NewWeight(w, 33, 100);
    const auto expected = test::MatMulReference(x, w, {}, {}, 10, 33, 100);
    EXPECT_LE(test::RelativeError(Multiply(*weight, x, 10, 1), expected), 2e-6) << scale;
  }
}

TEST_P(CpuMatMulTest, WeightsComeFromEveryDtype) {
  Random random(6);
  constexpr int64_t kOut = 530;
  constexpr int64_t kIn = 70;
  std::vector<uint16_t> bf16;
  std::vector<uint16_t> fp16;
  std::vector<float> from_bf16;
  std::vector<float> from_fp16;
  for (int64_t i = 0; i < kOut * kIn; ++i) {
    bf16.push_back(static_cast<uint16_t>(random.Integer(0x3c00, 0x3f80)));
    from_bf16.push_back(std::bit_cast<float>(uint32_t{bf16.back()} << 16));
    // Subnormals included.
    fp16.push_back(static_cast<uint16_t>(random.Integer(0, 0x3c00) | random.Integer(0, 1) << 15));
    const int exponent = (fp16.back() >> 10) & 31;
    const int mantissa = fp16.back() & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    from_fp16.push_back(static_cast<float>((fp16.back() >> 15) != 0 ? -magnitude : magnitude));
  }
  const auto x = random.NormalVector(9 * kIn);
  const auto check = [&](const std::vector<uint16_t>& stored, DType dtype,
                         const std::vector<float>& same) {
    std::unique_ptr<Weight> weight;
    ASSERT_STATUS_OK(backend_->NewWeight(stored.data(), dtype, kOut, kIn, &weight));
    EXPECT_EQ(
        ByteDifference(Multiply(*weight, x, 9, 1), Multiply(*NewWeight(same, kOut, kIn), x, 9, 1)),
        "");
  };
  check(bf16, DType::kBF16, from_bf16);
  check(fp16, DType::kF16, from_fp16);
}

TEST_P(CpuMatMulTest, NoRowsIsNothingToDo) {
  Random random(7);
  const auto weight = NewWeight(random.NormalVector(6), 2, 3);
  EXPECT_TRUE(Lane(2)->MatMul({.weight = weight.get()}).ok());
}

INSTANTIATE_TEST_SUITE_P(PanelsAndSteps, CpuMatMulTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Step" : "Panels"; });

}  // namespace
}  // namespace deltafill::kernels
