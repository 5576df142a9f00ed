#include "tests/coordinator/simulated_cluster.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deltafill::coordinator::test {
namespace {

constexpr double kTickS = 0.25;

ModelFingerprint Fingerprint() {
  ModelFingerprint fingerprint;
  fingerprint.bytes.fill(7);
  return fingerprint;
}

}  // namespace

void PromptRecord::OnPlanned(const PlanSummary& summary, uint32_t attempt_now) {
  if (attempt_now <= attempt) faults.push_back("the attempt did not rise");
  plan = summary;
  attempt = attempt_now;
  progress = 0;
}

void PromptRecord::OnProgress(uint64_t tokens_done, uint32_t attempt_now) {
  if (attempt_now != attempt) faults.push_back("progress of another attempt");
  if (tokens_done < progress) faults.push_back("progress went back");
  progress = tokens_done;
}

void PromptRecord::OnBoundaryStored(const StoredBoundary& stored) {
  if (!boundaries.emplace(stored.boundary, stored).second) {
    faults.push_back(absl::StrCat("boundary ", stored.boundary, " reported twice"));
  }
}

void PromptRecord::OnSharedLeases(const std::vector<uint64_t>& lease_ids) {
  if (!shared_leases.empty() || finished) faults.push_back("shared leases came late or twice");
  shared_leases = lease_ids;
}

void PromptRecord::OnLogits(const std::string& values) {
  if (values.size() != kSimulatedVocabulary * sizeof(float))
    faults.push_back("logits of a wrong size");
  ++logits;
}

void PromptRecord::OnFinished(const absl::Status& final_status, const WorkTimings& final_timings,
                              const std::string& reason) {
  if (finished) faults.push_back("finished twice");
  finished = true;
  status = final_status;
  timings = final_timings;
  finish_reason = reason;
}

SimulatedCluster::SimulatedCluster(const ClusterSettings& settings, uint64_t seed)
    : settings_(settings),
      random_(seed),
      scheduler_(
          settings.scheduler, [this] { return now_s_; }, this) {}

PartId SimulatedCluster::PartOf(uint64_t boundary) {
  PartId part;
  std::memcpy(part.bytes.data(), &boundary, sizeof(boundary));
  part.bytes[31] = 1;
  return part;
}

PrefillWork SimulatedCluster::MakePrefill(uint64_t token_count, std::vector<uint64_t> boundaries,
                                          bool logits, uint64_t start_boundary) const {
  PrefillWork work;
  work.fingerprint = Fingerprint();
  work.numerics = "simulated";
  work.tenant = "default";
  work.tokens_begin = start_boundary;
  work.tokens = std::make_shared<const std::vector<uint32_t>>(token_count - start_boundary, 1u);
  work.start.boundary = start_boundary;
  if (start_boundary > 0) {
    for (const PartId& part : PartsOf(start_boundary)) {
      const bool latent = part != PartOf(start_boundary);
      work.start.parts.push_back({part, latent ? PartKind::kLatent : PartKind::kRecurrent, 1});
    }
  }
  work.boundaries = std::move(boundaries);
  work.last_logits = logits;
  return work;
}

void SimulatedCluster::At(double time_s, std::function<void()> action) {
  events_.push({std::max(time_s, now_s_), numbers_++, std::move(action)});
}

void SimulatedCluster::Run(double limit_s, bool until_finished) {
  double next_tick_s = now_s_ + kTickS;
  while (now_s_ < limit_s) {
    const bool idle = scheduler_.PromptsRunning() + scheduler_.PromptsQueued() == 0;
    if (until_finished && idle && events_.empty()) return;
    if (!events_.empty() && events_.top().time_s <= next_tick_s) {
      const Timed event = events_.top();
      events_.pop();
      now_s_ = event.time_s;
      event.action();
    } else {
      now_s_ = next_tick_s;
      next_tick_s += kTickS;
      for (auto& [number, worker] : workers_) {
        if (worker.alive && !worker.closed) scheduler_.OnHeartbeat(number, 0, 0.0);
      }
      scheduler_.Tick();
    }
    CheckBounds();
  }
}

double SimulatedCluster::Latency() {
  return settings_.latency_s_max > 0 ? random_.Uniform(0.0, settings_.latency_s_max) : 0.0;
}

WorkerNumber SimulatedCluster::AttachWorker() {
  const WorkerNumber number = ++worker_last_;
  workers_[number];
  WorkerProfile profile;
  profile.number = number;
  profile.name = absl::StrCat("worker-", number);
  profile.exchange_address = absl::StrCat("address-", number);
  profile.model.fingerprint = Fingerprint();
  profile.model.numerics = "simulated";
  profile.model.vocabulary = kSimulatedVocabulary;
  profile.model.layers = settings_.layers;
  if (settings_.latents) profile.model.latents = {{settings_.layers - 1}, 8, PartDType::kF32};
  profile.costs = settings_.costs;
  profile.range_tokens_max = 1024;
  scheduler_.AttachWorker(profile);
  return number;
}

void SimulatedCluster::KillWorker(WorkerNumber number, bool silent) {
  SimulatedWorker& worker = workers_.at(number);
  if (!worker.alive) return;
  worker.alive = false;
  if (silent) return;
  At(now_s_ + Latency(), [this, number] { scheduler_.LoseWorker(number, "killed"); });
}

std::vector<WorkerNumber> SimulatedCluster::living_workers() const {
  std::vector<WorkerNumber> living;
  for (const auto& [number, worker] : workers_) {
    if (worker.alive && !worker.closed) living.push_back(number);
  }
  return living;
}

size_t SimulatedCluster::usable_workers() const {
  size_t count = 0;
  for (const AttachedWorker& attached : scheduler_.Workers()) count += !attached.draining;
  size_t dead = 0;
  for (const auto& [number, worker] : workers_) dead += !worker.alive && !worker.closed;
  return count > dead ? count - dead : 0;
}

void SimulatedCluster::ForgetLeases(const PromptRecord& record) {
  for (const auto& [boundary, stored] : record.boundaries) {
    for (const PartReceipt& part : stored.parts) leases_.erase(part.lease_id);
  }
  for (uint64_t lease : record.shared_leases) {
    if (leases_.erase(lease) == 0) Fault("a shared lease was released before its prompt's end");
  }
}

void SimulatedCluster::RenewLeases(const std::vector<uint64_t>& lease_ids) {
  for (uint64_t id : lease_ids) {
    if (leases_.count(id) == 0) Fault(absl::StrCat("lease ", id, " renewed after its release"));
  }
}

void SimulatedCluster::ReleaseLeases(const std::vector<uint64_t>& lease_ids) {
  for (uint64_t id : lease_ids) {
    if (leases_.erase(id) == 0) Fault(absl::StrCat("lease ", id, " released twice"));
  }
}

void SimulatedCluster::CloseWorker(WorkerNumber number, const absl::Status&) {
  workers_.at(number).closed = true;
  if (workers_.at(number).alive) Fault("a worker that sends heartbeats was given up");
}

// Queues and mailboxes stay within the bounds that dispatch.cc states.
void SimulatedCluster::CheckBounds() {
  const SchedulerOptions& options = settings_.scheduler;
  for (const AttachedWorker& worker : scheduler_.Workers()) {
    if (worker.ranges_queued > options.ranges_queued_max + options.prompts_running_max) {
      Fault(absl::StrCat(worker.name, " has ", worker.ranges_queued, " ranges queued, more than ",
                         options.ranges_queued_max, " + ", options.prompts_running_max));
    }
  }
  for (const auto& [number, worker] : workers_) {
    std::set<std::pair<AttemptRef, uint32_t>> early;
    for (const auto& [key, end] : worker.mailbox) {
      const std::pair<AttemptRef, uint32_t> range{std::get<0>(key), std::get<1>(key)};
      if (worker.known.count(range) + worker.abort_sent.count(range.first) == 0) {
        early.insert(range);
      }
    }
    if (early.size() > options.prompts_running_max) Fault("too many early boundary states");
  }
}

}  // namespace deltafill::coordinator::test
