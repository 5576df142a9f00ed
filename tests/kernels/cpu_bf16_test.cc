// Compute dtype bf16: activations and weights are rounded to bf16, sums stay fp32.
#include "tests/kernels/bf16_rounding.h"
#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/random.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::Random;

class CpuBf16Test : public ::testing::Test {
 protected:
  void SetUp() override { MakeBf16Backend(&backend_); }

  std::unique_ptr<Weight> NewWeight(std::span<const float> w, int64_t out, int64_t in) {
    std::unique_ptr<Weight> weight;
    const Status status = backend_->NewWeight(w.data(), DType::kF32, out, in, &weight);
    EXPECT_TRUE(status.ok()) << status.message();
    return weight;
  }

  std::vector<float> Multiply(const Weight& weight, std::span<const float> x, int64_t rows,
                              int threads) {
    std::unique_ptr<Operators> lane;
    EXPECT_TRUE(backend_->NewOperators(threads, &lane).ok());
    PlacedRows placed_x(x, rows, weight.in_features(), threads, threads);
    PlacedRows y(rows, weight.out_features(), 0, threads);
    const Status status = lane->MatMul({.x = placed_x, .weight = &weight, .y = y, .rows = rows});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.SurroundingsIntact());
    return y.Dense();
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CpuBf16Test, IsTheProductOfRoundedInputs) {
  Random random(1);
  EXPECT_EQ(backend_->numerics().rfind("cpu/bf16/avx512", 0), 0u) << backend_->numerics();
  for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 65}, {33, 129}, {512, 64}, {515, 1001}, {1100, 2304}, {7, 4096}}) {
    const int64_t rows = random.Integer(1, 100);
    const auto w = random.NormalVector(out * in, 0.05);
    const auto x = random.NormalVector(rows * in);
    const auto expected =
        test::MatMulReference(RoundedToBf16(x), RoundedToBf16(w), {}, {}, rows, out, in);
    const auto weight = NewWeight(w, out, in);
    EXPECT_LE(test::RelativeError(Multiply(*weight, x, rows, 2), expected), 2e-6)
        << "out " << out << ", in " << in;
  }
}

TEST_F(CpuBf16Test, BitsOfARowDependOnNothingElse) {
  Random random(2);
  for (const auto& [out, in] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 40}, {130, 257}, {700, 512}}) {
    const auto x = random.NormalVector(kInvarianceRows * in);
    const auto weight = NewWeight(random.NormalVector(out * in, 0.1), out, in);
    const auto all = Multiply(*weight, x, kInvarianceRows, 1);
    int threads = 1;
    for (const RowRun& run : kRowRuns) {
      threads = threads % 4 + 1;
      const auto y = Multiply(*weight, Slice(x, run.begin, run.rows, in), run.rows, threads);
      EXPECT_EQ(ByteDifference(y, Slice(all, run.begin, run.rows, out)), "");
    }
  }
}

TEST_F(CpuBf16Test, EmbeddingReadsTheRoundedTable) {
  Random random(3);
  const auto table = random.NormalVector(600 * 45);
  const auto weight = NewWeight(table, 600, 45);
  const std::vector<uint32_t> tokens = {599, 0, 512, 511, 77};
  std::vector<float> y(tokens.size() * 45);
  std::unique_ptr<Operators> lane;
  ASSERT_STATUS_OK(backend_->NewOperators(1, &lane));
  ASSERT_STATUS_OK(
      lane->Embedding({.table = weight.get(), .tokens = tokens, .y = {y.data(), DType::kF32, 45}}));
  std::vector<float> expected;
  for (uint32_t token : tokens) {
    const auto row = RoundedToBf16(Slice(table, token, 1, 45));
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(ByteDifference(y, expected), "");
}

}  // namespace
}  // namespace deltafill::kernels
