// Compute dtype bf16 in latent attention and mixtures of experts: what is multiplied with a weight
// is rounded, as the weight is; scores, averages, routing and sums stay fp32.
#include "tests/kernels/bf16_rounding.h"
#include "tests/kernels/cpu_latent_test_base.h"
#include "tests/kernels/cpu_mixture_test_base.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::LatentDims;
using test::LatentReference;
using test::MixtureReference;
using test::Random;

class CpuHybridBf16Test : public CpuLatentTest {
 protected:
  void SetUp() override { MakeBf16Backend(&backend_); }
};

TEST_F(CpuHybridBf16Test, LatentAttentionIsThatOfRoundedProducts) {
  Random random(1);
  for (const LatentDims& dims : {kOddDims, kLatentDims[3]}) {
    const auto w = RandomProjection(dims, random);
    const auto projection = Project(dims, w);
    const CachedLatents latents(dims, 330, random);
    const auto q = random.NormalVector(330 * dims.QueryWidth());
    const auto rounded_w = RoundedToBf16(w);
    const auto rounded_latents = RoundedToBf16(latents.dense());
    const double scale = DefaultScale(dims);
    const LatentReference prefill(dims, rounded_w, latents.dense(), scale, rounded_latents);
    const LatentReference step(dims, rounded_w, latents.dense(), scale);
    const auto whole = PrefillRange(*projection, q, latents, 0, 330);
    for (int64_t position : {0, 63, 64, 200, 329}) {
      const auto q_row = Slice(q, position, 1, dims.QueryWidth());
      EXPECT_LE(test::RelativeError(Slice(whole, position, 1, dims.OutputWidth()),
                                    prefill.Attend(q_row, position)),
                3e-6);
      const LatentSequence sequences[] = {latents.At(position)};
      EXPECT_LE(
          test::RelativeError(Step(*projection, q_row, sequences, 2), step.Attend(q_row, position)),
          3e-6);
    }
    const auto part = PrefillRange(*projection, q, latents, 128, 202, 2);
    EXPECT_EQ(ByteDifference(part, Slice(whole, 128, 202, dims.OutputWidth())), "");
  }
}

TEST_F(CpuHybridBf16Test, ExpertsMultiplyRoundedRows) {
  Random random(2);
  const MixtureReference mixture = RandomMixture({16, 3, 130, 70}, random);
  MixtureReference rounded = mixture;
  for (auto& w : rounded.gate_up) w = RoundedToBf16(w);
  for (auto& w : rounded.down) w = RoundedToBf16(w);
  rounded.round_inner = [](float x) { return RoundedToBf16(x); };
  const LoadedMixture loaded(mixture, [this](const std::vector<float>& w, int64_t out, int64_t in) {
    return NewWeight(w, out, in);
  });
  const auto x = random.NormalVector(kInvarianceRows * 130);
  const auto all = loaded.Run(*Lane(1), x);
  // A near-tie may round the other way than in float64: seldom, and by one bf16 step.
  int64_t exact = 0;
  for (int64_t row = 0; row < kInvarianceRows; ++row) {
    const auto x_row = Slice(x, row, 1, 130);
    if (mixture.Route(x_row).margin < 1e-5) continue;
    const auto expected = rounded.Row(x_row, RoundedToBf16(x_row));
    const double error = test::RelativeError(Slice(all, row, 1, 130), expected);
    EXPECT_LE(error, 4e-3);
    exact += error <= 5e-6 ? 1 : 0;
  }
  EXPECT_GE(exact, kInvarianceRows * 8 / 10);
  for (const RowRun& run : kRowRuns) {
    for (const bool step : {false, true}) {
      const auto y = loaded.Run(*Lane(2), Slice(x, run.begin, run.rows, 130), 3, {}, step);
      EXPECT_EQ(ByteDifference(y, Slice(all, run.begin, run.rows, 130)), "")
          << (step ? "step" : "whole panels");
    }
  }
}

// Expert 0's logit is 1000 (x0 - x1) = 0.98, expert 1's 0.5; with x rounded expert 0's would be 0.
TEST_F(CpuHybridBf16Test, RoutingIsFp32) {
  Random random(3);
  MixtureReference mixture = RandomMixture({2, 1, 3, 8}, random);
  mixture.bias.clear();
  mixture.router = {1000.0f, -1000.0f, 0.0f, 0.0f, 0.0f, 1.0f};
  const std::vector<float> x = {1.0f + 0x1p-10f, 1.0f, 0.5f};
  ASSERT_EQ(RoundedToBf16(x[0]), 1.0f);
  ASSERT_EQ(mixture.Route(x).experts[0], 0);
  const LoadedMixture loaded(mixture, [this](const std::vector<float>& w, int64_t out, int64_t in) {
    return NewWeight(w, out, in);
  });
  EXPECT_LE(test::RelativeError(loaded.Run(*Lane(1), x), mixture.Row(x, x)), 2e-2);
}

}  // namespace
}  // namespace deltafill::kernels
