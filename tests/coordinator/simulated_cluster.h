// Workers, streams and a store as the scheduler sees them, in simulated time: the scheduler runs
// for real, everything around it is events in one queue ordered by (time, number). A seed replays
// exactly.
//
// The workers obey proto/worker.proto: ranges first in, first out, layer by layer; a range with a
// peer as its source waits at every layer for that layer's boundary state. What they are given is
// checked as a real worker would notice it: a state must end where the range starts, and with the
// latents that it holds, loads and is sent a worker must have those of all tokens before its range.
#ifndef DELTAFILL_TESTS_COORDINATOR_SIMULATED_CLUSTER_H_
#define DELTAFILL_TESTS_COORDINATOR_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/testing/random.h"

namespace deltafill::coordinator::test {

using deltafill::test::Random;

inline constexpr uint32_t kSimulatedVocabulary = 4;

struct ClusterSettings {
  SchedulerOptions scheduler;
  uint32_t layers = 3;
  WorkerCosts costs{0.0, 1e-4, 0.0, 1.0, 0.0};
  double latency_s_max =
      0.0;  // of streams, which keep their order, and of hand-overs, which do not
  double hand_over_s_max = 0.0;   // more, for hand-overs
  double save_s_max = 0.0;        // until a boundary is stored
  bool strict_hand_over = false;  // a sender waits until its receiver has been given the range
  double recovery_skip = 0.0;     // chance that a recovery boundary is skipped
  double stored_loss = 0.0;       // chance that a stored boundary that is read is damaged
  bool latents = false;           // the last layer is one of attention
};

// What a prompt's observer has seen.
struct PromptRecord : PromptObserver {
  void OnPlanned(const PlanSummary& summary, uint32_t attempt_now) override;
  void OnProgress(uint64_t tokens_done, uint32_t attempt_now) override;
  void OnBoundaryStored(const StoredBoundary& stored) override;
  void OnSharedLeases(const std::vector<uint64_t>& lease_ids) override;
  void OnLogits(const std::string& values) override;
  void OnDecodeReady() override { ++ready; }
  void OnDecodeToken(uint32_t id) override { tokens.push_back(id); }
  void OnFinished(const absl::Status& status, const WorkTimings& timings,
                  const std::string& reason) override;

  PlanSummary plan;
  uint32_t attempt = 0;
  uint64_t progress = 0;
  std::map<uint64_t, StoredBoundary> boundaries;
  std::vector<uint64_t> shared_leases;
  int logits = 0;
  int ready = 0;
  std::vector<uint32_t> tokens;
  bool finished = false;
  absl::Status status;
  WorkTimings timings;
  std::string finish_reason;
  std::vector<std::string> faults;
};

class SimulatedCluster final : public SchedulerOutput {
 public:
  SimulatedCluster(const ClusterSettings& settings, uint64_t seed);

  Scheduler& scheduler() { return scheduler_; }
  double now_s() const { return now_s_; }
  Random& random() { return random_; }

  void At(double time_s, std::function<void()> action);
  // Runs until the time, or, with until_s < 0, until every prompt has finished (limit_s at most).
  void Run(double limit_s, bool until_finished);

  WorkerNumber AttachWorker();
  // silent: the stream stays open and nothing comes any more.
  void KillWorker(WorkerNumber worker, bool silent);
  size_t usable_workers() const;
  std::vector<WorkerNumber> living_workers() const;

  PrefillWork MakePrefill(uint64_t token_count, std::vector<uint64_t> boundaries, bool logits,
                          uint64_t start_boundary) const;
  static PartId PartOf(uint64_t boundary);
  static PartId PieceOf(uint64_t end);
  // The parts of a boundary in the order in which a manifest names them.
  std::vector<PartId> PartsOf(uint64_t boundary) const;

  // Everything that went against the protocol or a bound; empty if all is well.
  const std::vector<std::string>& faults() const { return faults_; }
  // Leases that are neither released nor the caller's.
  std::set<uint64_t> OpenLeases() const { return leases_; }
  void ForgetLeases(const PromptRecord& record);
  const std::map<AttemptRef, std::vector<RangeOrder>>& given() const { return given_; }
  const std::set<std::pair<AttemptRef, uint32_t>>& computed() const { return computed_; }

  void Send(WorkerNumber worker, const WorkerOrder& order) override;
  void CloseWorker(WorkerNumber worker, const absl::Status& reason) override;
  void RenewLeases(const std::vector<uint64_t>& lease_ids) override;
  void ReleaseLeases(const std::vector<uint64_t>& lease_ids) override;

 private:
  using HandOver = std::tuple<AttemptRef, uint32_t, uint32_t>;  // attempt, range, layer

  struct HandedOn {
    uint64_t end = 0;           // token at which the state ends
    uint64_t latents_from = 0;  // latents of [latents_from, end) came with it
  };

  struct SimulatedWorker {
    bool alive = true;
    bool closed = false;  // the coordinator ended the stream
    bool drain_received = false;
    bool drained_sent = false;
    std::deque<RangeOrder> queue;
    uint32_t layer = 0;      // of the front range
    bool computing = false;  // a layer of the front range is under way
    uint64_t epoch = 0;      // raised when the front range goes: older completions are void
    uint32_t unsent = 0;     // saves and hand-overs under way
    std::set<AttemptRef> abort_sent;  // by the coordinator; received or on its way
    std::set<AttemptRef> aborted;
    std::set<std::pair<AttemptRef, uint32_t>> known;  // ranges it was given
    std::map<HandOver, HandedOn> mailbox;
    std::map<AttemptRef, uint64_t> holds;  // latents of so many tokens
    double to_worker_s = 0.0;              // when the last message on its way arrives
    double to_coordinator_s = 0.0;
  };

  double Latency();
  void Fault(const std::string& what) { faults_.push_back(what); }
  void Report(WorkerNumber worker, std::function<void()> report);
  void CheckOrder(WorkerNumber worker, const RangeOrder& order);
  void Receive(WorkerNumber worker, const WorkerOrder& order);
  void Abort(WorkerNumber worker, const AttemptRef& attempt);
  void Advance(WorkerNumber worker);
  void FinishLayer(WorkerNumber worker);
  void FinishRange(WorkerNumber worker);
  bool HandOn(WorkerNumber worker, const RangeOrder& order, uint32_t layer);
  // simulated_latents.cc
  void CheckLatentOrder(const RangeOrder& order);
  bool OpenLatents(WorkerNumber worker, const RangeOrder& order);
  void CloseLatents(WorkerNumber worker, const RangeOrder& order);
  uint64_t NewLease();

  void Save(WorkerNumber worker, const AttemptRef& attempt, const BoundaryOrder& boundary);
  void FailAttempt(WorkerNumber worker, const AttemptRef& attempt, AttemptFailure failure);
  void ReportDrainedIfIdle(WorkerNumber worker);
  void CheckBounds();

  struct Timed {
    double time_s;
    uint64_t number;
    std::function<void()> action;
    bool operator<(const Timed& other) const {
      return std::tie(time_s, number) > std::tie(other.time_s, other.number);
    }
  };

  const ClusterSettings settings_;
  Random random_;
  double now_s_ = 0.0;
  uint64_t numbers_ = 0;
  std::priority_queue<Timed> events_;
  Scheduler scheduler_;
  std::map<WorkerNumber, SimulatedWorker> workers_;
  std::set<WorkerNumber> draining_told_;
  WorkerNumber worker_last_ = 0;
  uint64_t lease_last_ = 0;
  std::set<uint64_t> leases_;
  std::map<AttemptRef, std::vector<RangeOrder>> given_;
  std::map<AttemptRef, std::vector<WorkerNumber>> given_to_;
  std::set<std::pair<AttemptRef, uint32_t>> computed_;
  std::vector<std::string> faults_;
};

}  // namespace deltafill::coordinator::test

#endif  // DELTAFILL_TESTS_COORDINATOR_SIMULATED_CLUSTER_H_
