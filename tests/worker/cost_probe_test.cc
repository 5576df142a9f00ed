// What the planner's costs are measured on.
#include "worker/runtime/cost_probe.h"

#include <gtest/gtest.h>

namespace deltafill::worker {
namespace {

constexpr int64_t kRows = 4096;
constexpr double kBudget = 0.3;

// Cards of one kind must not be fitted to ranges of different lengths, however their block's time
// scatters: their costs would not compare, and one would be given everything.
TEST(CostProbe, ADeviceIsAskedForItsLongestRange) {
  for (const double block_s : {1e-4, 0.02, 0.024, 0.026, 0.2, 5.0}) {
    EXPECT_EQ(ComparedTokens(block_s, kRows, true, kBudget), kRows) << block_s;
  }
  EXPECT_EQ(ComparedTokens(0.02, 100, true, kBudget), 64);
}

TEST(CostProbe, AHostIsAskedForWhatTheBudgetAllows) {
  EXPECT_EQ(ComparedTokens(1e-5, 1024, false, kBudget), 1024);
  EXPECT_EQ(ComparedTokens(1.0, 1024, false, kBudget), 64);
  int64_t before = 1024;
  for (double block_s = 1e-4; block_s < 1; block_s *= 1.5) {
    const int64_t tokens = ComparedTokens(block_s, 1024, false, kBudget);
    EXPECT_LE(tokens, before) << block_s;
    if (tokens > 64) {
      EXPECT_LT(block_s * static_cast<double>(tokens) / 64, kBudget) << block_s;
    }
    before = tokens;
  }
}

TEST(CostProbe, CostsAreDescribedByKindOfLayer) {
  CostConstants costs{1e-3, 5e-7, 2e-4, 0.25, 3e-4, {}};
  EXPECT_EQ(DescribeCosts(costs).find("attention"), std::string::npos);
  costs.attention = {1e-3, 3e-7, 3e-11, 0.05, 2e-8, 1e-8};
  const std::string text = DescribeCosts(costs);
  EXPECT_NE(text.find("an attention layer 1000.0 us"), std::string::npos) << text;
  EXPECT_NE(text.find("3e-05 us a pair"), std::string::npos) << text;
}

}  // namespace
}  // namespace deltafill::worker
