// Embedding, RMS norm and SwiGLU: the operators whose rows have nothing to do with one another.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/random.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::Random;

class CpuRowsTest : public CpuBackendTest {
 protected:
  std::vector<float> Norm(std::span<const float> x, std::span<const float> weight,
                          std::span<const float> gate, int64_t groups, float eps, int threads,
                          int64_t padding = 0) {
    const int64_t width = static_cast<int64_t>(weight.size());
    const int64_t channels = groups * width;
    const int64_t rows = static_cast<int64_t>(x.size()) / channels;
    PlacedRows placed_x(x, rows, channels, padding, padding);
    PlacedRows y(rows, channels, 1, 2 * padding);
    std::unique_ptr<PlacedRows> placed_gate;
    ConstRows gate_rows;
    if (!gate.empty()) {
      placed_gate = std::make_unique<PlacedRows>(gate, rows, channels, 0, padding);
      gate_rows = *placed_gate;
    }
    const Status status = Lane(threads)->RmsNorm({.x = placed_x,
                                                  .weight = weight.data(),
                                                  .gate = gate_rows,
                                                  .y = y,
                                                  .rows = rows,
                                                  .groups = groups,
                                                  .width = width,
                                                  .eps = eps});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.SurroundingsIntact());
    return y.Dense();
  }

  std::vector<float> SwiGlu(std::span<const float> gate, std::span<const float> up, int64_t rows,
                            int threads, int64_t padding = 0) {
    const int64_t width = static_cast<int64_t>(gate.size()) / rows;
    PlacedRows placed_gate(gate, rows, width, padding, padding);
    PlacedRows placed_up(up, rows, width, 0, 2 * padding);
    PlacedRows y(rows, width, 1, padding);
    const Status status = Lane(threads)->SwiGlu(
        {.gate = placed_gate, .up = placed_up, .y = y, .rows = rows, .width = width});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.SurroundingsIntact());
    return y.Dense();
  }
};

TEST_F(CpuRowsTest, RmsNormMatchesFloat64) {
  Random random(1);
  for (int64_t width : {1, 3, 8, 16, 17, 32, 63, 64, 65, 128, 130, 1000, 2304}) {
    for (int64_t groups : {1, 3}) {
      const int64_t rows = random.Integer(1, 20);
      const auto x = random.NormalVector(rows * groups * width, 3.0, 0.5);
      const auto weight = random.NormalVector(width, 0.2, 1.0);
      const auto gate = random.NormalVector(rows * groups * width, 4.0);
      for (bool gated : {false, true}) {
        const std::span<const float> used =
            gated ? std::span<const float>(gate) : std::span<const float>();
        const auto expected = test::RmsNormReference(x, weight, used, rows, groups, width, 1e-5f);
        EXPECT_LE(test::MaxHeadRelativeError(Norm(x, weight, used, groups, 1e-5f, 2), expected,
                                             rows, groups, width),
                  2e-6)
            << "width " << width << ", groups " << groups << ", gated " << gated;
      }
    }
  }
}

TEST_F(CpuRowsTest, RmsNormOfExtremeRows) {
  Random random(2);
  const auto weight = random.UniformVector(75, 0.5, 1.5);
  const std::vector<float> zeros(75);
  EXPECT_EQ(ByteDifference(Norm(zeros, weight, {}, 1, 0.0f, 1), zeros), "");
  EXPECT_EQ(ByteDifference(Norm(zeros, weight, {}, 1, 1e-6f, 1), zeros), "");
  for (double scale : {1e-38, 1e-20, 1e-3, 1e18, 1e25, 3e37}) {
    const auto x = random.UniformVector(75, -scale, scale);
    const auto expected = test::RmsNormReference(x, weight, {}, 1, 1, 75, 1e-6f);
    EXPECT_LE(test::RelativeError(Norm(x, weight, {}, 1, 1e-6f, 1), expected), 2e-6) << scale;
  }
}

TEST_F(CpuRowsTest, SwiGluMatchesFloat64) {
  Random random(3);
  for (int64_t width : {1, 7, 15, 16, 17, 31, 100, 1024, 2049}) {
    const int64_t rows = random.Integer(1, 40);
    const auto gate = random.NormalVector(rows * width, 3.0);
    const auto up = random.NormalVector(rows * width);
    EXPECT_LE(test::RelativeError(SwiGlu(gate, up, rows, 3, 2), test::SwiGluReference(gate, up)),
              2e-6);
  }
}

// Every value by itself, over the whole range in which exp is a normal number.
TEST_F(CpuRowsTest, SiluIsAccurateEverywhere) {
  std::vector<float> gate;
  for (float x = -87.0f; x < 90.0f; x += 0.00137f) gate.push_back(x);
  for (float x = 1e-30f; x < 1.0f; x *= 1.7f) gate.insert(gate.end(), {x, -x});
  const std::vector<float> up(gate.size(), 1.0f);
  const auto y = SwiGlu(gate, up, 1, 1);
  const auto expected = test::SwiGluReference(gate, up);
  double largest = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(y[i] - expected[i]) / std::abs(expected[i]));
  }
  EXPECT_LE(largest, 5e-7);
}

TEST_F(CpuRowsTest, SaturatedGatesStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> gate = {-kMax, kMax, -1e4f, 1e4f, -104.0f, -88.0f, -87.34f, 0.0f, -0.0f};
  const std::vector<float> up(gate.size(), 0.5f);
  const auto y = SwiGlu(gate, up, 1, 1);
  ASSERT_TRUE(test::AllFinite(y));
  const auto expected = test::SwiGluReference(gate, up);
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(y[i], expected[i], std::abs(expected[i]) * 1e-6 + 1e-35) << gate[i];
  }
  const std::vector<float> x(gate.size(), 2.0f);
  const std::vector<float> weight(gate.size(), 1.0f);
  EXPECT_TRUE(test::AllFinite(Norm(x, weight, gate, 1, 1e-5f, 1)));
}

TEST_F(CpuRowsTest, BitsOfARowDependOnNothingElse) {
  Random random(4);
  for (int64_t width : {5, 16, 67, 128, 300}) {
    const auto x = random.NormalVector(kInvarianceRows * 2 * width);
    const auto gate = random.NormalVector(kInvarianceRows * 2 * width, 2.0);
    const auto weight = random.NormalVector(width);
    const auto normed = Norm(x, weight, gate, 2, 1e-5f, 1);
    const auto gated = SwiGlu(gate, x, kInvarianceRows, 1);
    int threads = 1;
    for (const RowRun& run : kRowRuns) {
      threads = threads % 4 + 1;
      const auto cut = [&](std::span<const float> dense) {
        return Slice(dense, run.begin, run.rows, 2 * width);
      };
      EXPECT_EQ(
          ByteDifference(Norm(cut(x), weight, cut(gate), 2, 1e-5f, threads, threads), cut(normed)),
          "");
      EXPECT_EQ(ByteDifference(SwiGlu(cut(gate), cut(x), run.rows, threads, threads), cut(gated)),
                "");
    }
  }
}

TEST_F(CpuRowsTest, OutputsMayAliasInputs) {
  Random random(5);
  constexpr int64_t kRows = 30;
  constexpr int64_t kWidth = 77;
  const auto x = random.NormalVector(kRows * kWidth);
  const auto gate = random.NormalVector(kRows * kWidth);
  const auto weight = random.NormalVector(kWidth);
  const auto lane = Lane(2);
  auto y = x;
  MutableRows rows{y.data(), DType::kF32, kWidth};
  ASSERT_STATUS_OK(lane->RmsNorm({.x = rows,
                                  .weight = weight.data(),
                                  .gate = {gate.data(), DType::kF32, kWidth},
                                  .y = rows,
                                  .rows = kRows,
                                  .width = kWidth}));
  EXPECT_EQ(ByteDifference(y, Norm(x, weight, gate, 1, 1e-5f, 1)), "");
  const auto expected = SwiGlu(gate, x, kRows, 1);
  y = x;
  ASSERT_STATUS_OK(lane->SwiGlu({.gate = {gate.data(), DType::kF32, kWidth},
                                 .up = rows,
                                 .y = rows,
                                 .rows = kRows,
                                 .width = kWidth}));
  EXPECT_EQ(ByteDifference(y, expected), "");
}

TEST_F(CpuRowsTest, EmbeddingCopiesRowsExactly) {
  Random random(6);
  for (int64_t vocabulary : {1, 256, 512, 1300}) {
    constexpr int64_t kWidth = 97;
    const auto table = random.NormalVector(vocabulary * kWidth);
    const auto weight = NewWeight(table, vocabulary, kWidth);
    std::vector<uint32_t> tokens = {0, static_cast<uint32_t>(vocabulary - 1)};
    for (int i = 0; i < 700; ++i) {
      tokens.push_back(static_cast<uint32_t>(random.Integer(0, vocabulary - 1)));
    }
    const int64_t rows = static_cast<int64_t>(tokens.size());
    std::vector<float> expected;
    for (uint32_t token : tokens) {
      const auto row = Slice(table, token, 1, kWidth);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for (int threads = 1; threads <= 4; ++threads) {
      PlacedRows y(rows, kWidth, 3, threads);
      ASSERT_STATUS_OK(Lane(threads)->Embedding({.table = weight.get(), .tokens = tokens, .y = y}));
      EXPECT_EQ(ByteDifference(y.Dense(), expected), "");
      EXPECT_TRUE(y.SurroundingsIntact());
    }
  }
}

}  // namespace
}  // namespace deltafill::kernels
