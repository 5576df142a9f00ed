// Lanes of one backend are independent: several run at once on the same weights, while others are
// being made, and give the bits that one alone gives.
#include <thread>

#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/random.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::Random;

constexpr int64_t kRows = 130;
constexpr int64_t kOut = 530;
constexpr int64_t kIn = 48;

// Product, norm and gate, the way a layer chains them.
std::vector<float> RunLayer(Backend& backend, const Weight& weight, std::span<const float> x,
                            std::span<const float> norm_weight, int threads) {
  std::unique_ptr<Operators> lane;
  std::vector<float> y(kRows * kOut);
  const MutableRows rows{y.data(), DType::kF32, kOut};
  Status status = backend.NewOperators(threads, &lane);
  if (status.ok()) {
    status = lane->MatMul(
        {.x = {x.data(), DType::kF32, kIn}, .weight = &weight, .y = rows, .rows = kRows});
  }
  if (status.ok()) {
    status = lane->RmsNorm(
        {.x = rows, .weight = norm_weight.data(), .y = rows, .rows = kRows, .width = kOut});
  }
  if (status.ok()) {
    status = lane->SwiGlu({.gate = rows, .up = rows, .y = rows, .rows = kRows, .width = kOut});
  }
  EXPECT_TRUE(status.ok()) << status.message();
  return y;
}

class CpuLanesTest : public ::testing::TestWithParam<DType> {};

TEST_P(CpuLanesTest, RunAtOnceOnSharedWeights) {
  std::unique_ptr<Backend> backend;
  const Status status = NewCpuBackend({.compute_dtype = GetParam()}, &backend);
  if (status.code() == StatusCode::kUnsupported) GTEST_SKIP() << status.message();
  ASSERT_STATUS_OK(status);
  Random random(1);
  const auto w = random.NormalVector(kOut * kIn);
  const auto x = random.NormalVector(kRows * kIn);
  const auto norm_weight = random.NormalVector(kOut);

  // The first products of the process run at once too: oneDNN compiles its kernels then.
  std::unique_ptr<Weight> weight;
  ASSERT_STATUS_OK(backend->NewWeight(w.data(), DType::kF32, kOut, kIn, &weight));
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> users;
  for (size_t user = 0; user < results.size(); ++user) {
    users.emplace_back([&, user] {
      for (int round = 0; round < 5; ++round) {
        std::unique_ptr<Weight> own;
        EXPECT_TRUE(backend->NewWeight(w.data(), DType::kF32, kOut, kIn, &own).ok());
        results[user] = RunLayer(*backend, round % 2 == 0 ? *weight : *own, x, norm_weight,
                                 1 + static_cast<int>(user) % 3);
      }
    });
  }
  for (std::thread& user : users) user.join();
  const auto alone = RunLayer(*backend, *weight, x, norm_weight, 1);
  ASSERT_TRUE(test::AllFinite(alone));
  for (const auto& result : results) EXPECT_EQ(ByteDifference(result, alone), "");
}

INSTANTIATE_TEST_SUITE_P(ComputeDTypes, CpuLanesTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& instance) {
                           return instance.param == DType::kF32 ? "F32" : "BF16";
                         });

}  // namespace
}  // namespace deltafill::kernels
