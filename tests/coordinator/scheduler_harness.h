// A scheduler with a clock that is set by hand and an output that remembers: for tests that play
// the workers themselves, message by message.
#ifndef DELTAFILL_TESTS_COORDINATOR_SCHEDULER_HARNESS_H_
#define DELTAFILL_TESTS_COORDINATOR_SCHEDULER_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/coordinator/simulated_cluster.h"

namespace deltafill::coordinator::test {

class SchedulerHarness final : public SchedulerOutput {
 public:
  explicit SchedulerHarness(const SchedulerOptions& options = DefaultOptions())
      : scheduler(
            options, [this] { return now_s; }, this) {}

  static SchedulerOptions DefaultOptions() {
    SchedulerOptions options;
    options.plan.range_tokens = 128;
    return options;
  }

  WorkerProfile Profile(WorkerNumber number, const std::string& numerics = "exact") const {
    WorkerProfile profile;
    profile.number = number;
    profile.name = "worker-" + std::to_string(number);
    profile.model.fingerprint.bytes.fill(7);
    profile.model.numerics = numerics;
    profile.model.vocabulary = kSimulatedVocabulary;
    profile.model.layers = 2;
    profile.costs = {0.0, 1e-3, 0.0, 1.0, 0.0};
    profile.range_tokens_max = 1024;
    return profile;
  }
  void Attach(WorkerNumber number) { scheduler.AttachWorker(Profile(number)); }

  void Lose(WorkerNumber number) {
    std::erase_if(ranges, [&](const auto& given) { return given.first == number; });
    scheduler.LoseWorker(number, "killed");
  }

  PrefillWork Prefill(uint64_t size, std::vector<uint64_t> boundaries = {},
                      bool logits = true) const {
    PrefillWork work;
    work.fingerprint.bytes.fill(7);
    work.numerics = "exact";
    work.tokens = std::make_shared<const std::vector<uint32_t>>(size, 1u);
    work.boundaries = std::move(boundaries);
    work.last_logits = logits;
    return work;
  }

  std::shared_ptr<PromptRecord> Submit(PrefillWork work) {
    auto record = std::make_shared<PromptRecord>();
    const auto number = scheduler.SubmitPrefill(std::move(work), record);
    submitted = number.status();
    if (number.ok()) last = *number;
    return record;
  }

  DecodeWork Decode() const {
    DecodeWork work;
    work.fingerprint.bytes.fill(7);
    work.numerics = "exact";
    work.tokens = {1, 2, 3};
    work.max_tokens = 4;
    return work;
  }

  // Plays everything that workers still owe: ranges in the order given, boundaries at once.
  void FinishRanges() {
    while (!ranges.empty()) FinishRange();
  }
  void FinishRange(bool store = true) {
    const auto [worker, order] = ranges.front();
    ranges.erase(ranges.begin());
    for (const BoundaryOrder& boundary : order.boundaries) {
      if (store) Store(worker, order.attempt, boundary.boundary);
    }
    if (order.last_logits) {
      scheduler.OnLastLogits(worker, order.attempt, std::string(4 * kSimulatedVocabulary, 'x'));
    }
    scheduler.OnRangeDone(worker, order.attempt, order.range);
  }
  // The lease of a boundary is its number of tokens and the attempt.
  static uint64_t LeaseOf(uint64_t boundary, uint32_t attempt) { return boundary * 100 + attempt; }
  void Store(WorkerNumber worker, const AttemptRef& attempt, uint64_t boundary) {
    StoredBoundary stored;
    stored.boundary = boundary;
    stored.parts = {{SimulatedCluster::PartOf(boundary), PartKind::kRecurrent, 1,
                     LeaseOf(boundary, attempt.attempt)}};
    scheduler.OnBoundaryStored(worker, attempt, stored, false);
  }

  void Send(WorkerNumber worker, const WorkerOrder& order) override {
    if (const auto* range = std::get_if<RangeOrder>(&order)) ranges.push_back({worker, *range});
    if (const auto* decode = std::get_if<DecodeOrder>(&order)) decodes.push_back({worker, *decode});
    if (const auto* exported = std::get_if<ExportOrder>(&order)) {
      exports.push_back({worker, *exported});
    }
    if (const auto* abort = std::get_if<AbortOrder>(&order)) {
      aborts.push_back({worker, abort->attempt});
      std::erase_if(ranges, [&, to = worker](const auto& given) {
        return given.first == to && given.second.attempt == abort->attempt;
      });
    }
    if (std::holds_alternative<DrainOrder>(order)) drains.push_back(worker);
  }
  void CloseWorker(WorkerNumber worker, const absl::Status&) override { closed.push_back(worker); }
  void RenewLeases(const std::vector<uint64_t>& ids) override {
    renewed.insert(renewed.end(), ids.begin(), ids.end());
  }
  void ReleaseLeases(const std::vector<uint64_t>& ids) override {
    released.insert(released.end(), ids.begin(), ids.end());
  }

  double now_s = 0.0;
  absl::Status submitted;
  PromptNumber last = 0;
  std::vector<std::pair<WorkerNumber, RangeOrder>> ranges;  // given, not finished
  std::vector<std::pair<WorkerNumber, DecodeOrder>> decodes;
  std::vector<std::pair<WorkerNumber, ExportOrder>> exports;
  std::vector<std::pair<WorkerNumber, AttemptRef>> aborts;
  std::vector<WorkerNumber> drains;
  std::vector<WorkerNumber> closed;
  std::vector<uint64_t> renewed;
  std::vector<uint64_t> released;
  Scheduler scheduler;
};

}  // namespace deltafill::coordinator::test

#endif  // DELTAFILL_TESTS_COORDINATOR_SCHEDULER_HARNESS_H_
