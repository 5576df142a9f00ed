#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/expert_routing.h"
#include "kernels/cpu/prefill_operators.h"
#include "tests/kernels/cpu_mixture_test_base.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::MixtureReference;
using test::Random;

constexpr MixtureSizes kSizes[] = {{1, 1, 5, 3},     {4, 4, 33, 20},   {16, 3, 40, 24},
                                   {64, 8, 130, 17}, {8, 2, 600, 300}, {300, 5, 24, 8}};

class CpuMixtureTest : public CpuBackendTest {
 protected:
  LoadedMixture Load(const MixtureReference& mixture) {
    return {mixture, [this](const std::vector<float>& w, int64_t out, int64_t in) {
              return NewWeight(w, out, in);
            }};
  }

  // Rows whose choice of experts is not a near-tie, which fp32 may break the other way.
  void ExpectMatchesFloat64(const MixtureReference& mixture, std::span<const float> x,
                            std::span<const float> y) {
    const int64_t rows = static_cast<int64_t>(x.size()) / mixture.hidden;
    int64_t checked = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const auto x_row = Slice(x, row, 1, mixture.hidden);
      if (mixture.Route(x_row).margin < 1e-5) continue;
      ++checked;
      EXPECT_LE(test::RelativeError(Slice(y, row, 1, mixture.hidden), mixture.Row(x_row, x_row)),
                5e-6)
          << "row " << row << ", experts " << mixture.experts << ", hidden " << mixture.hidden;
    }
    EXPECT_GE(checked, rows * 9 / 10);
  }
};

TEST_F(CpuMixtureTest, MatchesFloat64) {
  Random random(1);
  for (const MixtureSizes& sizes : kSizes) {
    MixtureReference mixture = RandomMixture(sizes, random);
    for (int variant = 0; variant < 4; ++variant) {
      mixture.renormalize = variant % 2 == 0;
      mixture.biased_weights = variant == 1 || variant == 2;
      if (variant == 3) mixture.bias.clear();
      const int64_t rows = variant == 0 ? 1 : random.Integer(2, sizes.hidden > 500 ? 20 : 150);
      const auto x = random.NormalVector(rows * sizes.hidden);
      const LoadedMixture loaded = Load(mixture);
      for (const bool step : {false, true}) {
        ExpectMatchesFloat64(mixture, x, loaded.Run(*Lane(1 + variant % 3), x, variant, {}, step));
      }
    }
  }
}

TEST_F(CpuMixtureTest, BitsOfARowDependOnNothingElse) {
  Random random(2);
  for (const MixtureSizes& sizes : kSizes) {
    const MixtureReference mixture = RandomMixture(sizes, random);
    const LoadedMixture loaded = Load(mixture);
    const auto x = random.NormalVector(kInvarianceRows * sizes.hidden);
    const auto before = random.NormalVector(kInvarianceRows * sizes.hidden);
    for (const bool step : {false, true}) {
      const auto all = loaded.Run(*Lane(1), x, 0, before, step);
      int threads = 1;
      for (const RowRun& run : kRowRuns) {
        threads = threads % 3 + 1;
        const auto y =
            loaded.Run(*Lane(threads), Slice(x, run.begin, run.rows, sizes.hidden), threads - 1,
                       Slice(before, run.begin, run.rows, sizes.hidden), step);
        EXPECT_EQ(ByteDifference(y, Slice(all, run.begin, run.rows, sizes.hidden)), "")
            << "rows " << run.begin << " + " << run.rows << ", experts " << sizes.experts
            << (step ? ", step" : "");
      }
    }
  }
}

TEST_F(CpuMixtureTest, BatchesAndWavesDoNotShow) {
  Random random(3);
  const MixtureReference mixture = RandomMixture({16, 3, 40, 24}, random);
  const LoadedMixture loaded = Load(mixture);
  const auto x = random.NormalVector(500 * 40);
  const auto expected = loaded.Run(*Lane(1), x);
  for (const auto& budget : {cpu::MixtureBudget{1, 1}, cpu::MixtureBudget{600, 200000},
                             cpu::MixtureBudget{1 << 20, 60000}}) {
    cpu::ThreadTeam team(2);
    cpu::LaneScratch scratch(team.threads());
    std::vector<float> y(expected.size(), 0.0f);
    ASSERT_STATUS_OK(cpu::MixtureOfExperts(
        loaded.Params({x.data(), DType::kF32, 40}, {y.data(), DType::kF32, 40}, 500), team, scratch,
        budget));
    EXPECT_EQ(ByteDifference(y, expected), "") << budget.choices << ", " << budget.wave_bytes;
  }
}

TEST_F(CpuMixtureTest, OneExpertMayGetAllRows) {
  Random random(4);
  MixtureReference mixture = RandomMixture({12, 1, 40, 24}, random);
  std::fill(mixture.bias.begin(), mixture.bias.end(), 0.0f);
  mixture.bias[7] = 10.0f;
  const auto x = random.NormalVector(333 * 40);
  const auto y = Load(mixture).Run(*Lane(2), x);
  ExpectMatchesFloat64(mixture, x, y);
}

TEST_F(CpuMixtureTest, TiesGoToTheLowerIndex) {
  Random random(5);
  MixtureReference mixture = RandomMixture({9, 4, 20, 10}, random);
  std::fill(mixture.router.begin(), mixture.router.end(), 0.0f);
  mixture.bias.assign(9, 0.0f);
  mixture.bias[6] = 1.0f;  // 6, then 0, 1, 2
  const auto x = random.NormalVector(3 * 20);
  const auto y = Load(mixture).Run(*Lane(1), x);
  for (int64_t row = 0; row < 3; ++row) {
    const auto x_row = Slice(x, row, 1, 20);
    EXPECT_EQ(mixture.Route(x_row).experts, (std::vector<int64_t>{0, 1, 2, 6}));
    EXPECT_LE(test::RelativeError(Slice(y, row, 1, 20), mixture.Row(x_row, x_row)), 5e-6);
  }
}

TEST_F(CpuMixtureTest, NonFiniteScoresAreChosenAndShow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const MixtureShape shape{.experts = 6, .top_k = 3, .hidden = 1, .expert_width = 1};
  const auto choose = [&](std::array<float, 6> logits, std::array<float, 3>* weights) {
    std::array<int32_t, 3> experts;
    cpu::ChooseExperts(shape, nullptr, logits.data(), experts.data(), weights->data());
    return experts;
  };
  std::array<float, 3> weights;
  EXPECT_EQ(choose({0, 1, nan, 3, -inf, 2}, &weights), (std::array<int32_t, 3>{2, 3, 5}));
  EXPECT_TRUE(std::isnan(weights[0]) && std::isnan(weights[1]));
  EXPECT_EQ(choose({nan, nan, nan, nan, nan, nan}, &weights), (std::array<int32_t, 3>{0, 1, 2}));
  EXPECT_EQ(choose({-inf, -inf, inf, 0, -inf, inf}, &weights), (std::array<int32_t, 3>{2, 3, 5}));
  EXPECT_FLOAT_EQ(weights[0], 0.4f);
  EXPECT_FLOAT_EQ(weights[1], 0.2f);
  EXPECT_EQ(choose({-inf, -inf, -inf, -inf, -inf, -inf}, &weights),
            (std::array<int32_t, 3>{0, 1, 2}));
  EXPECT_EQ(weights[0], 0.0f);

  Random random(6);
  const MixtureReference mixture = RandomMixture({16, 3, 40, 24}, random);
  const LoadedMixture loaded = Load(mixture);
  auto x = random.NormalVector(130 * 40);
  const auto clean = loaded.Run(*Lane(1), x);
  x[70 * 40 + 3] = nan;
  x[71 * 40] = inf;
  const auto y = loaded.Run(*Lane(2), x);
  for (int64_t row = 0; row < 130; ++row) {
    const auto actual = Slice(y, row, 1, 40);
    if (row == 70 || row == 71) {
      EXPECT_FALSE(test::AllFinite(actual));
    } else {
      EXPECT_EQ(ByteDifference(actual, Slice(clean, row, 1, 40)), "") << row;
    }
  }
}

TEST_F(CpuMixtureTest, NoRowsIsNothingToDo) {
  Random random(7);
  const MixtureReference mixture = RandomMixture({4, 2, 8, 4}, random);
  EXPECT_EQ(Load(mixture).Run(*Lane(2), {}).size(), 0u);
}

}  // namespace
}  // namespace deltafill::kernels
