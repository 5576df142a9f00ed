// Choosing tokens from logits.
#include "worker/runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace deltafill::worker {
namespace {

TEST(SamplerTest, PhiloxMatchesThePublishedVectors) {
  // Known answers of philox4x32-10 from the authors' Random123 distribution.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(SamplerTest, GreedyTakesTheLowestOfEquals) {
  const std::vector<float> logits = {1, 3, 2, 3, 3};
  EXPECT_EQ(SampleToken(logits, {0.0, 1.0, 9}, 4), 1u);
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f), -100.0f};
  std::vector<int> counts(4);
  constexpr int kDraws = 80000;
  for (int i = 0; i < kDraws; ++i) ++counts[SampleToken(logits, {1.0, 1.0, 42}, i)];
  EXPECT_NEAR(counts[0], kDraws / 8, 500);
  EXPECT_NEAR(counts[1], kDraws / 4, 700);
  EXPECT_NEAR(counts[2], kDraws * 5 / 8, 800);
  EXPECT_EQ(counts[3], 0);
  // The nucleus of 0.8: 5/8 + 2/8 of the weight; the rest is never drawn.
  counts.assign(4, 0);
  for (int i = 0; i < kDraws; ++i) ++counts[SampleToken(logits, {1.0, 0.8, 43}, i)];
  EXPECT_EQ(counts[0] + counts[3], 0);
  EXPECT_NEAR(counts[2], kDraws * 5 / 7, 800);
  // A nucleus of almost nothing is greedy; equal logits keep the lowest ids.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(SampleToken(logits, {1.0, 1e-9, 44}, i), 2u);
    EXPECT_LE(SampleToken(std::vector<float>(10, 1.0f), {1.0, 0.2, 45}, i), 1u);
  }
}

// Against float64: probabilities by std::exp, tokens sorted by logit for the nucleus.
TEST(SamplerTest, DrawsAreThoseOfTheExactDistribution) {
  std::vector<float> logits(4099);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(8.0 * std::sin(static_cast<double>(i * i % 6007)) - 3.0);
  }
  logits[17] = 20.0f;
  logits[4098] = -300.0f;
  for (const double temperature : {0.1, 1.0, 3.0, 1e6}) {
    for (const double top_p : {1.0, 0.95, 0.3}) {
      std::vector<double> weights;
      std::vector<size_t> order(logits.size());
      for (float x : logits)
        weights.push_back(std::exp((static_cast<double>(x) - 20.0) / temperature));
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return logits[a] > logits[b]; });
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      double kept = 0;
      for (const size_t id : order) {
        if (top_p < 1.0 && kept >= top_p * total) weights[id] = 0;
        kept += weights[id];
      }
      int differing = 0;
      for (uint64_t position = 0; position < 400; ++position) {
        double sum = 0;
        size_t exact = 0;
        const double threshold = UniformAt(5, position) * kept;
        for (; exact + 1 < weights.size() && sum + weights[exact] <= threshold; ++exact) {
          sum += weights[exact];
        }
        differing += SampleToken(logits, {temperature, top_p, 5}, position) != exact;
      }
      EXPECT_LE(differing, 1) << temperature << " " << top_p;  // thresholds a rounding away
    }
  }
}

TEST(SamplerTest, DependsOnSeedAndPositionOnly) {
  const std::vector<float> logits(1000, 0.0f);
  const SamplingParams params{1.0, 1.0, 7};
  EXPECT_EQ(SampleToken(logits, params, 5), SampleToken(logits, params, 5));
  int differing = 0;
  for (int i = 0; i < 50; ++i) {
    differing += SampleToken(logits, params, i) != SampleToken(logits, {1.0, 1.0, 8}, i);
  }
  EXPECT_GT(differing, 40);
}

}  // namespace
}  // namespace deltafill::worker
