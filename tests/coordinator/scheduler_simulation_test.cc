// Seeded random scenarios: workers attach, die and drain, prompts are cancelled, saves are slow,
// hand-overs overtake each other. DELTAFILL_SIMULATION_SEED=N replays one seed,
// DELTAFILL_SIMULATION_SEEDS=N runs that many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/coordinator/simulated_cluster.h"

namespace deltafill::coordinator::test {
namespace {

struct Submitted {
  PromptNumber number = 0;
  std::shared_ptr<PromptRecord> record;
  PrefillWork work;
  bool cancelled = false;
};

struct Scenario {
  uint64_t seed = 0;
  ClusterSettings settings;
  bool may_be_empty = false;  // all workers may go at once
  int losses = 0;
  bool was_empty = false;
  std::unique_ptr<SimulatedCluster> cluster;
  std::vector<Submitted> prompts;
};

ClusterSettings RandomSettings(Random& random) {
  ClusterSettings settings;
  settings.layers = static_cast<uint32_t>(random.Integer(1, 4));
  settings.costs.layer_fixed_s = random.Integer(0, 1) * 0.002;
  settings.costs.handover_fraction = 1.0;
  settings.latency_s_max = random.Integer(0, 3) == 0 ? 0.0 : random.Uniform(0.0, 0.2);
  settings.hand_over_s_max = random.Integer(0, 1) * random.Uniform(0.0, 0.5);
  settings.save_s_max = random.Integer(0, 1) * random.Uniform(0.0, 3.0);
  settings.strict_hand_over = random.Integer(0, 1) == 1;
  settings.recovery_skip = random.Integer(0, 1) * 0.3;
  settings.stored_loss = random.Integer(0, 2) == 0 ? 0.05 : 0.0;
  settings.latents = random.Integer(0, 2) == 0;
  settings.scheduler.prompts_running_max = static_cast<uint32_t>(random.Integer(1, 4));
  settings.scheduler.ranges_queued_max = static_cast<uint32_t>(random.Integer(1, 3));
  settings.scheduler.recovery_interval_s = random.Integer(0, 3) == 0 ? 0.0 : 0.3;
  settings.scheduler.lease_renewal_s = 0.7;
  settings.scheduler.heartbeat_timeout_s = 2.0;
  settings.scheduler.failures_max = 1000;
  if (random.Integer(0, 1) == 1) {
    settings.scheduler.plan.range_tokens = static_cast<uint64_t>(64 * random.Integer(1, 6));
    if (settings.latents) settings.scheduler.plan.range_tokens *= 4;
  }
  return settings;
}

void SubmitOne(Scenario& scenario) {
  SimulatedCluster& cluster = *scenario.cluster;
  Random& random = cluster.random();
  auto size = static_cast<uint64_t>(random.Integer(0, 2) == 0 ? random.Integer(1, 200)
                                                              : random.Integer(200, 4000));
  if (scenario.settings.latents) size *= 4;  // several pieces
  const uint64_t blocks = (size - 1) / 64;
  const uint64_t start =
      random.Integer(0, 3) == 0 ? 64 * static_cast<uint64_t>(random.Integer(0, blocks)) : 0;
  std::vector<uint64_t> boundaries;
  for (uint64_t boundary = start + 64; boundary <= size; boundary += 64) {
    if (random.Integer(0, scenario.settings.latents ? 20 : 5) == 0) boundaries.push_back(boundary);
  }
  Submitted submitted;
  submitted.work = cluster.MakePrefill(size, boundaries, random.Integer(0, 1) == 1, start);
  if (random.Integer(0, 1) == 1) submitted.work.schedule = ScheduleChoice::kWavefront;
  submitted.record = std::make_shared<PromptRecord>();
  const auto number = cluster.scheduler().SubmitPrefill(submitted.work, submitted.record);
  if (!number.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(number.status())) << number.status();
    EXPECT_TRUE(scenario.may_be_empty) << number.status();
    return;
  }
  submitted.number = *number;
  scenario.prompts.push_back(submitted);
}

void Disturb(Scenario& scenario) {
  SimulatedCluster& cluster = *scenario.cluster;
  Random& random = cluster.random();
  const std::vector<WorkerNumber> living = cluster.living_workers();
  const bool spare = cluster.usable_workers() > 1 || scenario.may_be_empty;
  switch (random.Integer(0, 4)) {
    case 0:
      if (living.size() < 6) cluster.AttachWorker();
      break;
    case 1:
    case 2:
      if (spare && !living.empty()) {
        ++scenario.losses;
        cluster.KillWorker(living[random.Integer(0, living.size() - 1)], random.Integer(0, 2) == 0);
      }
      break;
    case 3:
      if (spare && !living.empty()) {
        ++scenario.losses;
        cluster.scheduler().DrainWorker(living[random.Integer(0, living.size() - 1)]);
      }
      break;
    case 4:
      if (!scenario.prompts.empty() && random.Integer(0, 1) == 0) {
        Submitted& prompt = scenario.prompts[random.Integer(0, scenario.prompts.size() - 1)];
        prompt.cancelled |= !prompt.record->finished;
        cluster.scheduler().Cancel(prompt.number);
      }
      break;
  }
  scenario.was_empty |= cluster.usable_workers() == 0;
}

void CheckFinished(const Scenario& scenario, const Submitted& prompt) {
  const PromptRecord& record = *prompt.record;
  for (const std::string& fault : record.faults) ADD_FAILURE() << fault;
  ASSERT_TRUE(record.finished) << "prompt " << prompt.number << " never finished";
  if (prompt.cancelled) {
    EXPECT_TRUE(absl::IsCancelled(record.status)) << record.status;
    return;
  }
  if (!record.status.ok()) {
    const bool excused = (absl::IsUnavailable(record.status) && scenario.may_be_empty) ||
                         (absl::IsDataLoss(record.status) && scenario.settings.stored_loss > 0 &&
                          prompt.work.start.boundary > 0);
    EXPECT_TRUE(excused) << record.status;
    return;
  }
  std::vector<uint64_t> stored;
  for (const auto& [boundary, receipt] : record.boundaries) {
    stored.push_back(boundary);
    std::vector<PartId> parts;
    for (const PartReceipt& part : receipt.parts) parts.push_back(part.id);
    EXPECT_EQ(parts, scenario.cluster->PartsOf(boundary));
  }
  EXPECT_EQ(stored, prompt.work.boundaries);
  EXPECT_EQ(record.logits, prompt.work.last_logits ? 1 : 0);
  // The final attempt has computed all of its ranges, up to the end, unless everything had been
  // delivered when its worker was lost.
  const AttemptRef attempt{prompt.number, record.attempt};
  const auto given = scenario.cluster->given().find(attempt);
  uint64_t computed_end = prompt.work.start.boundary;
  bool whole = given != scenario.cluster->given().end();
  for (const RangeOrder& range : whole ? given->second : std::vector<RangeOrder>()) {
    whole &= scenario.cluster->computed().count({attempt, range.range}) > 0;
    computed_end = range.span.first_token + range.span.token_count;
  }
  if (record.attempt == 1 && scenario.losses == 0) {
    EXPECT_TRUE(whole);
    EXPECT_EQ(computed_end, prompt.work.end());
    EXPECT_EQ(record.progress, prompt.work.end());
  }
  EXPECT_TRUE(whole || scenario.losses > 0);
}

void RunScenario(uint64_t seed) {
  Scenario scenario;
  scenario.seed = seed;
  Random random(seed);
  scenario.settings = RandomSettings(random);
  scenario.may_be_empty = random.Integer(0, 4) == 0;
  scenario.cluster = std::make_unique<SimulatedCluster>(scenario.settings, seed ^ 0x5eed);
  SimulatedCluster& cluster = *scenario.cluster;
  for (int64_t count = random.Integer(1, 5); count > 0; --count) cluster.AttachWorker();
  for (int64_t count = random.Integer(1, 7); count > 0; --count) {
    cluster.At(random.Uniform(0.0, 4.0), [&] { SubmitOne(scenario); });
  }
  const int64_t disturbances = random.Integer(0, 2) == 0 ? 0 : random.Integer(1, 10);
  for (int64_t count = disturbances; count > 0; --count) {
    cluster.At(random.Uniform(0.0, 6.0), [&] { Disturb(scenario); });
  }
  cluster.Run(1e4, true);
  for (const Submitted& prompt : scenario.prompts) {
    CheckFinished(scenario, prompt);
    cluster.ForgetLeases(*prompt.record);
  }
  for (const std::string& fault : cluster.faults()) ADD_FAILURE() << fault;
  EXPECT_TRUE(cluster.OpenLeases().empty()) << cluster.OpenLeases().size() << " leases leaked";
  EXPECT_EQ(cluster.scheduler().PromptsRunning() + cluster.scheduler().PromptsQueued(), 0u);
}

TEST(SchedulerSimulation, EveryPromptFinishesAsItShould) {
  const char* one = std::getenv("DELTAFILL_SIMULATION_SEED");
  const char* many = std::getenv("DELTAFILL_SIMULATION_SEEDS");
  const uint64_t first = one != nullptr ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t count =
      one != nullptr ? 1 : (many != nullptr ? std::strtoull(many, nullptr, 10) : 3000);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("DELTAFILL_SIMULATION_SEED=" + std::to_string(seed));
    RunScenario(seed);
    if (::testing::Test::HasFailure()) break;
  }
}

// n ranges on each of W workers with L equal layers: nL / (nL + W - 1), as long as L >= W. With
// fewer layers a worker is through its range before the one that it takes next can start, W layers
// later.
TEST(SchedulerSimulation, WavefrontIsAsEfficientAsTheFormulaSays) {
  for (const auto& [workers, ranges_each, layers] :
       std::vector<std::tuple<uint32_t, uint32_t, uint32_t>>{
           {2, 4, 3}, {4, 8, 27}, {8, 16, 27}, {8, 2, 4}, {3, 5, 1}}) {
    ClusterSettings settings;
    settings.layers = layers;
    settings.scheduler.plan.range_tokens = 128;
    settings.scheduler.recovery_interval_s = 0.0;
    SimulatedCluster cluster(settings, 1);
    for (uint32_t worker = 0; worker < workers; ++worker) cluster.AttachWorker();
    const uint64_t size = uint64_t{128} * workers * ranges_each;
    PrefillWork work = cluster.MakePrefill(size, {}, true, 0);
    work.schedule = ScheduleChoice::kWavefront;
    const auto record = std::make_shared<PromptRecord>();
    ASSERT_TRUE(cluster.scheduler().SubmitPrefill(work, record).ok());
    cluster.Run(1e4, true);
    ASSERT_TRUE(record->status.ok()) << record->status;
    const double busy_s =
        static_cast<double>(size) * layers * settings.costs.layer_token_s / workers;
    const double efficiency = busy_s / record->timings.compute_s;
    const double n_layers = static_cast<double>(ranges_each) * layers;
    const double span = double(ranges_each - 1) * std::max(layers, workers) + layers + workers - 1;
    if (layers >= workers) {
      ASSERT_EQ(span, n_layers + workers - 1);
    }
    EXPECT_NEAR(efficiency, n_layers / span, 0.02 * efficiency)
        << workers << " workers, " << ranges_each << " ranges each, " << layers << " layers";
    EXPECT_NEAR(record->plan.predicted_s, record->timings.compute_s,
                0.02 * record->timings.compute_s);
  }
}

// A short prompt that arrives in the middle of a long one waits for a few ranges, not for its end.
TEST(SchedulerSimulation, ShortPromptIsNotStuckBehindALongOne) {
  ClusterSettings settings;
  settings.scheduler.plan.range_tokens = 128;
  SimulatedCluster cluster(settings, 1);
  cluster.AttachWorker();
  cluster.AttachWorker();
  const auto slow = std::make_shared<PromptRecord>();
  const auto fast = std::make_shared<PromptRecord>();
  ASSERT_TRUE(
      cluster.scheduler().SubmitPrefill(cluster.MakePrefill(128000, {}, true, 0), slow).ok());
  double fast_end_s = 0.0;
  cluster.At(1.0, [&] {
    ASSERT_TRUE(
        cluster.scheduler().SubmitPrefill(cluster.MakePrefill(100, {}, true, 0), fast).ok());
  });
  while (!fast->finished && cluster.now_s() < 100.0) cluster.Run(cluster.now_s() + 0.05, false);
  fast_end_s = cluster.now_s();
  cluster.Run(1e4, true);
  ASSERT_TRUE(fast->status.ok());
  ASSERT_TRUE(slow->status.ok());
  const double range_s = 128 * settings.layers * settings.costs.layer_token_s;
  EXPECT_LT(fast_end_s - 1.0, 6 * range_s);
  EXPECT_GT(cluster.now_s(), 15.0);
}

}  // namespace
}  // namespace deltafill::coordinator::test
