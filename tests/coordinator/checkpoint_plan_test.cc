// The choice of checkpoints against all choices there are.
#include "coordinator/snapshots/checkpoint_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>

namespace deltafill::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Expected tokens recomputed before the change, and the price of what is kept.
double Cost(const std::vector<uint64_t>& kept, const std::vector<FirstChange>& changes,
            double price_tokens) {
  double cost = price_tokens * static_cast<double>(kept.size());
  for (const FirstChange& change : changes) {
    uint64_t from = 0;
    for (uint64_t boundary : kept) {
      if (boundary <= change.token) from = boundary;
    }
    cost += change.weight * static_cast<double>(change.token - from);
  }
  return cost;
}

struct Case {
  std::vector<uint64_t> candidates;
  std::vector<FirstChange> changes;
};

Case RandomCase(std::mt19937* random, size_t count) {
  Case made;
  uint64_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    at += 64 * (1 + (*random)() % 20);
    made.candidates.push_back(at);
  }
  uint64_t token = 0;
  for (int i = 0; i < 25; ++i) {
    token += (*random)() % 200;
    made.changes.push_back({token, static_cast<double>((*random)() % 100) / 1000});
  }
  return made;
}

std::vector<uint64_t> Subset(const std::vector<uint64_t>& all, uint32_t bits) {
  std::vector<uint64_t> subset;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((bits >> i & 1) != 0) subset.push_back(all[i]);
  }
  return subset;
}

TEST(CheckpointPlan, IsTheBestForItsPrice) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const Case each = RandomCase(&random, 9);
    const double price_tokens = static_cast<double>(random() % 200);
    // A token takes a second, a state is of one byte.
    const CheckpointPrices prices{1.0, price_tokens, 1, 100};
    const std::vector<uint64_t> kept = ChooseCheckpoints(each.candidates, each.changes, prices);
    double best = std::numeric_limits<double>::max();
    for (uint32_t bits = 0; bits < 512; ++bits) {
      best = std::min(best, Cost(Subset(each.candidates, bits), each.changes, price_tokens));
    }
    EXPECT_NEAR(Cost(kept, each.changes, price_tokens), best, 1e-6);
  }
}

TEST(CheckpointPlan, KeepsTheBestFewWhereTheBudgetIsSmall) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    const Case each = RandomCase(&random, 9);
    const size_t count_max = random() % 5;
    const CheckpointPrices prices{1.0, 0.0, 1, count_max};
    const std::vector<uint64_t> kept = ChooseCheckpoints(each.candidates, each.changes, prices);
    EXPECT_LE(kept.size(), count_max);
    double best = std::numeric_limits<double>::max();
    double best_of_size = best;
    for (uint32_t bits = 0; bits < 512; ++bits) {
      const auto size = static_cast<size_t>(std::popcount(bits));
      if (size > count_max) continue;
      const double cost = Cost(Subset(each.candidates, bits), each.changes, 0);
      best = std::min(best, cost);
      if (size == kept.size()) best_of_size = std::min(best_of_size, cost);
    }
    // A price meets the sizes on the lower hull only; there the choice is the best of its size.
    EXPECT_NEAR(Cost(kept, each.changes, 0), best_of_size, 1e-6);
    EXPECT_LE(best, best_of_size);
  }
}

TEST(CheckpointPlan, WorthlessOnesAreNotKept) {
  const std::vector<FirstChange> changes{{100, 0.0}, {500, 0.0}};
  EXPECT_THAT(ChooseCheckpoints({{64, 448}}, changes, {1e-5, 1e-9, 1000, 10}), IsEmpty());
  EXPECT_THAT(ChooseCheckpoints({}, changes, {1e-5, 1e-9, 1000, 10}), IsEmpty());
  EXPECT_THAT(ChooseCheckpoints({{64, 448}}, {{{500, 1.0}}}, {1e-5, 1e-9, 1000, 0}), IsEmpty());
}

TEST(CheckpointPlan, BytesDecide) {
  const std::vector<uint64_t> candidates{64, 640, 6400};
  const std::vector<FirstChange> changes{{100, 0.01}, {700, 0.01}, {6500, 0.5}};
  EXPECT_THAT(ChooseCheckpoints(candidates, changes, {1e-3, 1e-9, 1, 10}),
              ElementsAre(64, 640, 6400));
  EXPECT_THAT(ChooseCheckpoints(candidates, changes, {1e-3, 1e-3, 1000, 10}), ElementsAre(6400));
  EXPECT_THAT(ChooseCheckpoints(candidates, changes, {1e-3, 1e-3, 100'000'000, 10}), IsEmpty());
}

}  // namespace
}  // namespace deltafill::coordinator
