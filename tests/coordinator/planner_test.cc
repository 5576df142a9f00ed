#include "coordinator/planner/plan.h"

#include <gtest/gtest.h>

#include <set>

namespace deltafill::coordinator {
namespace {

WorkerSlot Slot(double token_s = 1e-5, double fixed_s = 1e-4, uint64_t range_tokens_max = 8192) {
  WorkerSlot slot;
  slot.costs = {fixed_s, token_s, 1e-3, 0.5, 1e-4};
  slot.range_tokens_max = range_tokens_max;
  return slot;
}

PlanProblem Problem(uint64_t first, uint64_t end) {
  PlanProblem problem;
  problem.first_token = first;
  problem.end_token = end;
  problem.layers = 27;
  return problem;
}

// Gapless, cut at multiples of 64, within the limit, every slot index valid.
void CheckShape(const PrefillPlan& plan, const PlanProblem& problem, size_t slots,
                uint64_t range_tokens_max) {
  ASSERT_FALSE(plan.ranges.empty());
  ASSERT_EQ(plan.ranges.size(), plan.placement.size());
  uint64_t next = problem.first_token;
  for (size_t r = 0; r < plan.ranges.size(); ++r) {
    EXPECT_EQ(plan.ranges[r].first_token, next);
    EXPECT_EQ(plan.ranges[r].first_token % 64, 0u);
    EXPECT_LE(plan.ranges[r].token_count, range_tokens_max);
    EXPECT_GE(plan.ranges[r].token_count, 1u);
    EXPECT_LT(plan.placement[r], slots);
    next += plan.ranges[r].token_count;
  }
  EXPECT_EQ(next, problem.end_token);
  EXPECT_EQ(std::set<uint32_t>(plan.placement.begin(), plan.placement.end()).size(), plan.workers);
}

TEST(Grid, OneRangeTakesItsCosts) {
  const WorkerSlot slot = Slot();
  const std::vector<TokenRange> ranges = {{0, 640}};
  const std::vector<uint32_t> placement = {0};
  const GridTimes times = SimulateGrid(ranges, placement, {&slot, 1}, 27);
  EXPECT_NEAR(times.finish_s, 1e-3 + 27 * (1e-4 + 640 * 1e-5), 1e-12);
  EXPECT_NEAR(times.busy_s, times.finish_s, 1e-12);
  EXPECT_NEAR(RangeSeconds(slot.costs, {0, 640}, 27), times.finish_s, 1e-12);
}

TEST(Grid, WavefrontEfficiencyIsTheFormulas) {
  for (uint32_t workers : {2u, 4u, 8u}) {
    const uint32_t layers = 27;
    const uint32_t each = 16;
    WorkerSlot slot = Slot(1e-5, 0.0);
    slot.costs.range_fixed_s = 0.0;
    slot.costs.exchange_s = 0.0;
    slot.costs.handover_fraction = 1.0;
    const std::vector<WorkerSlot> slots(workers, slot);
    const std::vector<TokenRange> ranges = CutRanges(0, uint64_t{128} * each * workers, 128, 8192);
    std::vector<uint32_t> placement;
    for (uint32_t r = 0; r < ranges.size(); ++r) placement.push_back(r % workers);
    const GridTimes times = SimulateGrid(ranges, placement, slots, layers);
    const double formula = double(each * layers) / (each * layers + workers - 1);
    EXPECT_NEAR(times.busy_s / (workers * times.finish_s), formula, 1e-9);
  }
}

TEST(Grid, EarlyHandOverAndCheapExchangeMakeItFaster) {
  std::vector<WorkerSlot> slots(4, Slot());
  const std::vector<TokenRange> ranges = CutRanges(0, 128 * 8, 128, 8192);
  std::vector<uint32_t> placement;
  for (uint32_t r = 0; r < ranges.size(); ++r) placement.push_back(r % 4);
  const double early_s = SimulateGrid(ranges, placement, slots, 27).finish_s;
  for (WorkerSlot& slot : slots) slot.costs.handover_fraction = 1.0;
  const double late_s = SimulateGrid(ranges, placement, slots, 27).finish_s;
  for (WorkerSlot& slot : slots) slot.costs.exchange_s = 1.0;
  const double dear_s = SimulateGrid(ranges, placement, slots, 27).finish_s;
  EXPECT_LT(early_s, late_s);
  EXPECT_GT(dear_s, 7.0);
}

TEST(CutRanges, TailJoinsTheRangeBefore) {
  EXPECT_EQ(CutRanges(0, 192, 128, 8192), (std::vector<TokenRange>{{0, 192}}));
  EXPECT_EQ(CutRanges(64, 321, 128, 192), (std::vector<TokenRange>{{64, 128}, {192, 129}}));
  EXPECT_EQ(CutRanges(0, 193, 128, 8192), (std::vector<TokenRange>{{0, 128}, {128, 65}}));
  // No room: the tail is a range.
  EXPECT_EQ(CutRanges(0, 257, 128, 128), (std::vector<TokenRange>{{0, 128}, {128, 128}, {256, 1}}));
  EXPECT_EQ(CutRanges(0, 1, 64, 64), (std::vector<TokenRange>{{0, 1}}));
  EXPECT_TRUE(CutRanges(64, 64, 64, 64).empty());
}

TEST(Plan, ShortPromptGoesToTheLeastLoadedWorker) {
  std::vector<WorkerSlot> slots(3, Slot());
  slots[0].queued_s = 2.0;
  slots[1].queued_s = 0.5;
  slots[2].queued_s = 1.0;
  const PlanProblem problem = Problem(0, 100);
  const auto plan = Plan(problem, slots, PlanOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  CheckShape(*plan, problem, slots.size(), 8192);
  EXPECT_EQ(plan->schedule, "serial");
  EXPECT_EQ(plan->placement, (std::vector<uint32_t>{1}));
  EXPECT_NE(plan->why.find("one worker"), std::string::npos) << plan->why;
}

TEST(Plan, LongPromptIsSpreadOverAllWorkers) {
  const std::vector<WorkerSlot> slots(8, Slot());
  const PlanProblem problem = Problem(0, 1'000'000);
  const auto plan = Plan(problem, slots, PlanOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  CheckShape(*plan, problem, slots.size(), 8192);
  EXPECT_EQ(plan->schedule, "wavefront");
  EXPECT_EQ(plan->workers, 8u);
  for (size_t r = 8; r < plan->placement.size(); ++r) {
    EXPECT_EQ(plan->placement[r], plan->placement[r - 8]);
  }
  const double alone_s = RangeSeconds(slots[0].costs, {0, 1'000'000}, 27);
  EXPECT_LT(plan->predicted_s, alone_s / 7.0);
  EXPECT_NE(plan->why.find("wavefront over 8 workers"), std::string::npos) << plan->why;
  EXPECT_NE(plan->why.find("on one worker"), std::string::npos) << plan->why;
}

// Kimi-Linear's 48 B shape as an H200 measures it, about: a block takes its experts' weights from
// memory, so that short ranges are dear; pairs count from some 30,000 tokens on.
TEST(Plan, TwoCardsShareALongPromptOfAHybrid) {
  std::vector<WorkerSlot> slots(2);
  for (size_t i = 0; i < slots.size(); ++i) {
    const double f = 1.0 + 0.04 * static_cast<double>(i);  // no two cards measure the same
    slots[i].range_tokens_max = 8192;
    slots[i].costs = {9.8e-4 * f, 3.5e-7 * f,
                      3e-4,       0.3,
                      3e-4,       {1.0e-3 * f, 3.2e-7 * f, 3.3e-11 * f, 0.05, 2e-8, 1.4e-8}};
  }
  for (const uint64_t tokens : {uint64_t{131072}, uint64_t{1} << 20}) {
    PlanProblem problem = Problem(0, tokens);
    problem.attention_layers = {3, 7, 11, 15, 19, 23, 26};
    const auto plan = Plan(problem, slots, PlanOptions());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->workers, 2u) << plan->why;
    const auto alone = Plan(problem, {slots.data(), 1}, PlanOptions());
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_LT(plan->predicted_s, alone->predicted_s / 1.8) << plan->why;
    EXPECT_GE(plan->range_tokens, 2048u) << plan->why;
  }
}

TEST(Plan, RangeLengthIsNoWorseThanItsNeighbours) {
  const std::vector<WorkerSlot> slots(4, Slot());
  const PlanProblem problem = Problem(640, 100'000);
  const auto best = Plan(problem, slots, PlanOptions());
  ASSERT_TRUE(best.ok());
  for (uint64_t length = 64; length <= 8192; length *= 2) {
    PlanOptions options;
    options.range_tokens = length;
    const auto other = Plan(problem, slots, options);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->range_tokens, length);
    EXPECT_LE(best->predicted_s, other->predicted_s * (1 + 1e-6)) << length;
  }
}

TEST(Plan, KeepsToTheRoomOfTheWorkers) {
  std::vector<WorkerSlot> slots(2, Slot());
  slots[1].range_tokens_max = 200;  // 3 blocks
  const PlanProblem problem = Problem(0, 50'000);
  PlanOptions options;
  options.range_tokens = 4096;
  PlanProblem spread = problem;
  spread.wavefront_only = true;
  const auto plan = Plan(spread, slots, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  CheckShape(*plan, problem, slots.size(), 200);
  EXPECT_EQ(plan->range_tokens, 192u);
  EXPECT_NE(plan->why.find("cut to the worker's room"), std::string::npos) << plan->why;
}

TEST(Plan, WavefrontOnRequestUsesAllWorkersIfThereAreBlocksEnough) {
  const std::vector<WorkerSlot> slots(4, Slot());
  PlanProblem problem = Problem(0, 300);
  problem.wavefront_only = true;
  const auto plan = Plan(problem, slots, PlanOptions());
  ASSERT_TRUE(plan.ok());
  CheckShape(*plan, problem, slots.size(), 8192);
  EXPECT_EQ(plan->schedule, "wavefront");
  EXPECT_GE(plan->workers, 2u);
  problem.end_token = 64;
  const auto tiny = Plan(problem, slots, PlanOptions());
  ASSERT_TRUE(tiny.ok());
  EXPECT_EQ(tiny->workers, 1u);
}

TEST(Plan, AnyExactnessChangesNothingAndSaysSo) {
  const std::vector<WorkerSlot> slots(2, Slot());
  PlanProblem problem = Problem(0, 10'000);
  const auto exact = Plan(problem, slots, PlanOptions());
  problem.any_exactness = true;
  const auto any = Plan(problem, slots, PlanOptions());
  ASSERT_TRUE(exact.ok() && any.ok());
  EXPECT_EQ(exact->ranges, any->ranges);
  EXPECT_EQ(exact->placement, any->placement);
  EXPECT_NE(any->why.find("ANY"), std::string::npos);
}

TEST(Plan, ManyShapesAreWellFormed) {
  for (uint64_t end : {1u, 63u, 64u, 65u, 127u, 128u, 129u, 4095u, 4096u, 4097u, 77'777u}) {
    for (size_t workers : {1u, 2u, 3u, 5u}) {
      for (uint64_t length : {0u, 64u, 192u, 4096u}) {
        for (bool wavefront : {false, true}) {
          const std::vector<WorkerSlot> slots(workers, Slot());
          PlanProblem problem = Problem(0, end);
          problem.wavefront_only = wavefront;
          PlanOptions options;
          options.range_tokens = length;
          const auto plan = Plan(problem, slots, options);
          ASSERT_TRUE(plan.ok()) << plan.status();
          CheckShape(*plan, problem, workers, 8192);
          EXPECT_GT(plan->predicted_s, 0.0);
        }
      }
    }
  }
}

TEST(Plan, RefusesWhatIsMalformed) {
  const std::vector<WorkerSlot> slots(2, Slot());
  PlanOptions options;
  EXPECT_TRUE(absl::IsInvalidArgument(Plan(Problem(0, 64), {}, options).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Plan(Problem(3, 64), slots, options).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Plan(Problem(64, 64), slots, options).status()));
  options.range_tokens = 100;
  EXPECT_TRUE(absl::IsInvalidArgument(Plan(Problem(0, 64), slots, options).status()));
  std::vector<WorkerSlot> tiny(1, Slot(1e-5, 1e-4, 32));
  EXPECT_TRUE(absl::IsInvalidArgument(Plan(Problem(0, 64), tiny, PlanOptions()).status()));
}

// One query-key pair costs 1 s: what a prompt takes does not depend on how it is cut.
TEST(Grid, AttentionGrowsWithThePosition) {
  WorkerSlot slot;
  slot.costs = {0.0, 0.0, 0.0, 1.0, 0.0, {0.0, 0.0, 1.0, 1.0, 0.0}};
  const std::vector<uint32_t> attention{1};
  const LayerStack layers(3, attention);
  EXPECT_EQ(layers.attention_count, 1u);
  EXPECT_DOUBLE_EQ(RangeSeconds(slot.costs, {0, 640}, layers), 640.0 * 640 / 2);
  EXPECT_DOUBLE_EQ(RangeSeconds(slot.costs, {640, 64}, layers), 64.0 * (640 + 32));
  const std::vector<TokenRange> ranges = CutRanges(0, 6400, 640, 640);
  const std::vector<uint32_t> placement(ranges.size(), 0);
  const GridTimes times = SimulateGrid(ranges, placement, {&slot, 1}, layers);
  EXPECT_DOUBLE_EQ(times.finish_s, 6400.0 * 6400 / 2);
  EXPECT_DOUBLE_EQ(times.busy_s, times.finish_s);
}

// Every range pays for each key that it sees, so that short ranges late in a prompt are dear.
TEST(Grid, KeysAreExpandedOnceARange) {
  WorkerSlot slot;
  slot.costs.attention.key_s = 1.0;
  const std::vector<uint32_t> attention{1};
  const LayerStack layers(3, attention);
  EXPECT_DOUBLE_EQ(RangeSeconds(slot.costs, {640, 64}, layers), 704.0);
  const std::vector<TokenRange> halves = CutRanges(0, 1280, 640, 640);
  const std::vector<TokenRange> blocks = CutRanges(0, 1280, 64, 64);
  const auto seconds = [&](const std::vector<TokenRange>& ranges) {
    const std::vector<uint32_t> placement(ranges.size(), 0);
    return SimulateGrid(ranges, placement, {&slot, 1}, layers).finish_s;
  };
  EXPECT_DOUBLE_EQ(seconds(halves), 640.0 + 1280);
  EXPECT_DOUBLE_EQ(seconds(blocks), 64.0 * 20 * 21 / 2);
}

// Latents leave before the attention, so that heavy layers run side by side.
TEST(Grid, EarlyHandOverKeepsAttentionLayersParallel) {
  const std::vector<uint32_t> attention{3, 7};
  const LayerStack layers(8, attention);
  std::vector<WorkerSlot> slots(4);
  for (WorkerSlot& slot : slots) {
    slot.costs = {0.0, 1e-5, 0.0, 0.5, 0.0, {0.0, 1e-5, 1e-9, 0.5, 0.0}};
  }
  const std::vector<TokenRange> ranges = CutRanges(0, 4 * 16 * 512, 512, 512);
  std::vector<uint32_t> placement;
  for (size_t r = 0; r < ranges.size(); ++r) placement.push_back(static_cast<uint32_t>(r % 4));
  const GridTimes early = SimulateGrid(ranges, placement, slots, layers);
  EXPECT_GT(early.busy_s / (4 * early.finish_s), 0.9);
  // Had they to be sent, from the last worker of the chain on, it would take longer.
  for (WorkerSlot& slot : slots) slot.costs.attention.row_exchange_s = 1e-5;
  EXPECT_GT(SimulateGrid(ranges, placement, slots, layers).finish_s, early.finish_s);
  // One worker sends nothing.
  const std::vector<uint32_t> alone(ranges.size(), 0);
  const GridTimes single = SimulateGrid(ranges, alone, slots, layers);
  EXPECT_NEAR(single.finish_s, single.busy_s, 1e-9);
}

// A hand-over costs what its sender measured, for the kind of its layer.
TEST(Grid, ExchangeIsCountedByKindAndSender) {
  const std::vector<uint32_t> attention{1};
  const LayerStack layers(2, attention);
  const std::vector<TokenRange> ranges = CutRanges(0, 4 * 64, 64, 64);
  const std::vector<uint32_t> placement{0, 1, 0, 1};
  std::vector<WorkerSlot> slots(2);
  const auto finish_s = [&] { return SimulateGrid(ranges, placement, slots, layers).finish_s; };
  EXPECT_DOUBLE_EQ(finish_s(), 0.0);
  slots[0].costs.attention.exchange_s = 1.0;
  slots[1].costs.attention.exchange_s = 5.0;
  EXPECT_DOUBLE_EQ(finish_s(), 1.0 + 5.0 + 1.0);
  slots[0].costs.exchange_s = 10.0;
  EXPECT_DOUBLE_EQ(finish_s(), 10.0 + 0.0 + 10.0);  // latents wait for the layer before theirs
  slots[1].costs.exchange_s = 3.0;
  EXPECT_DOUBLE_EQ(finish_s(), 10.0 + 3.0 + 10.0);
}

}  // namespace
}  // namespace deltafill::coordinator
