// The scheduler: which worker computes which range of which prompt, and what happens when a worker
// is lost. A single-threaded state machine: events in through the methods, orders out through
// SchedulerOutput and the prompts' observers, time from the injected clock. Nothing here blocks,
// and the same events at the same times give the same orders.
//
// Life of a prompt: queued -> running (attempt 1) -> finished, or, when a worker is lost, the
// attempt is aborted everywhere and the next one starts from the deepest boundary that is stored.
// Boundaries and logits that the observer has seen are never computed or reported again: the bits
// are the same in every attempt, so that results of an attempt given up late are taken as well.
//
// Not thread-safe. Observers must not call the scheduler back.
#ifndef DELTAFILL_COORDINATOR_SCHEDULER_SCHEDULER_H_
#define DELTAFILL_COORDINATOR_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/scheduler/state.h"

namespace deltafill::coordinator {

// Why a worker gave an attempt up, as it reported.
struct AttemptFailure {
  absl::Status status;
  bool stored_state_lost = false;  // a part it started from is damaged or gone
  bool peer_lost = false;          // a peer could not be reached
};

class Scheduler {
 public:
  // Seconds since any fixed point; never goes back.
  using Clock = std::function<double()>;

  Scheduler(const SchedulerOptions& options, Clock clock, SchedulerOutput* output);

  // Submissions and cancelling (submission.cc). INVALID_ARGUMENT for malformed work;
  // RESOURCE_EXHAUSTED when the queue is full; UNAVAILABLE if no worker serves the model.
  absl::StatusOr<PromptNumber> SubmitPrefill(PrefillWork work,
                                             std::shared_ptr<PromptObserver> observer);
  absl::StatusOr<PromptNumber> SubmitDecode(DecodeWork work,
                                            std::shared_ptr<PromptObserver> observer);
  absl::StatusOr<PromptNumber> SubmitExport(ExportWork work,
                                            std::shared_ptr<PromptObserver> observer);
  void Cancel(PromptNumber prompt);
  // Finishes every prompt with this status.
  void FinishAll(const absl::Status& status);

  // Workers come and go (worker_changes.cc). Numbers are never used twice.
  void AttachWorker(const WorkerProfile& profile);
  void LoseWorker(WorkerNumber worker, const std::string& reason);
  void DrainWorker(WorkerNumber worker);
  void OnDrained(WorkerNumber worker);
  void OnHeartbeat(WorkerNumber worker, uint64_t save_queue_bytes, double stall_s);

  // What workers report. Reports of finished prompts and of older attempts are dropped where they
  // are of no use any more; the leases that came with them are released.
  void OnRangeProgress(WorkerNumber worker, const AttemptRef& attempt, uint32_t range,
                       uint32_t layers_done);
  // restore_s: how long the range waited for the stored state it started from.
  void OnRangeDone(WorkerNumber worker, const AttemptRef& attempt, uint32_t range,
                   double restore_s = 0.0);
  void OnBoundaryStored(WorkerNumber worker, const AttemptRef& attempt,
                        const StoredBoundary& stored, bool skipped);
  void OnLatentPieceStored(WorkerNumber worker, const AttemptRef& attempt, uint64_t end,
                           const PartReceipt& part);
  void OnLastLogits(WorkerNumber worker, const AttemptRef& attempt, const std::string& values);
  void OnAttemptFailed(WorkerNumber worker, const AttemptRef& attempt,
                       const AttemptFailure& failure);
  void OnDecodeReady(WorkerNumber worker, const AttemptRef& attempt);
  void OnDecodeToken(WorkerNumber worker, const AttemptRef& attempt, uint32_t id);
  void OnDecodeFinished(WorkerNumber worker, const AttemptRef& attempt,
                        const std::string& finish_reason, const StoredBoundary& saved);
  void OnExportReady(WorkerNumber worker, const AttemptRef& attempt,
                     const std::vector<PartReceipt>& parts);

  // Time-outs, waits and lease renewals: call it a few times a second.
  void Tick();

  // How the last worker was lost, with its name; "" if none was.
  const std::string& LastLoss() const { return last_loss_; }
  std::vector<ServedModel> Models() const;  // by attached workers, those that drain included
  std::vector<AttachedWorker> Workers() const;
  uint32_t PromptsRunning() const;
  uint32_t PromptsQueued() const { return static_cast<uint32_t>(queue_.size()); }

 private:
  using Prompts = std::map<PromptNumber, PromptState>;

  // submission.cc
  // Sets prompt->has_latents.
  absl::Status Admit(PromptState* prompt) const;
  PromptNumber Enqueue(PromptState prompt);
  void StartQueued();
  bool TryStart(PromptState& prompt);

  // attempt.cc: prefill attempts from their start to their end
  std::vector<WorkerNumber> UsableWorkers(const PromptState& prompt) const;
  void WaitForWorker(PromptState& prompt);
  bool ChooseStart(PromptState& prompt);
  void BeginAttempt(PromptState& prompt);
  void LayOut(PromptState& prompt, const PrefillPlan& plan,
              const std::vector<WorkerNumber>& workers);
  void AbortAttempt(PromptState& prompt);
  // The attempt failed for `reason`: the next one, now or after retry_s; or UNAVAILABLE.
  void RetryAttempt(PromptState& prompt, const std::string& reason, double retry_s);
  bool FinishIfComplete(PromptState& prompt);
  void Finish(PromptState& prompt, const absl::Status& status, const std::string& finish_reason);

  // dispatch.cc
  void Dispatch();
  bool HasStarted(const PromptState& prompt, uint32_t range) const;
  bool CanGive(PromptState& prompt) const;
  void GiveRange(PromptState& prompt);
  void AddBoundaries(PrefillState& prefill, RangeOrder& order);
  void NoteFront(const WorkerState& worker);

  // range_reports.cc
  PromptState* FindCurrent(const AttemptRef& attempt);  // nullptr if it is not the current attempt
  void AddProgress(PromptState& prompt, uint32_t range, uint32_t layers_done);

  // latents.cc
  bool HasLatentRoom(const WorkerState& worker, uint64_t tokens) const;
  bool ShortOfRoom(const PromptState& prompt) const;
  void AddLatents(PrefillState& prefill, WorkerNumber worker, RangeOrder& order);
  void TakeWaiting(PromptNumber number);
  void ForgetStart(PrefillState& prefill);
  void RenewLatents(PrefillState& prefill);
  void EndLatents(PrefillState& prefill, PromptObserver& observer);

  // boundary_reports.cc
  bool TakeBoundary(PromptState& prompt, const StoredBoundary& own);
  void KeepRecovery(PrefillState& prefill, const StoredBoundary& stored);
  void PruneRecovery(PrefillState& prefill);
  void ReleaseRecovery(const PrefillState& prefill);  // all leases of kept recovery boundaries
  void Release(const std::vector<PartReceipt>& parts);

  // worker_changes.cc
  bool Needs(const PrefillState& prefill, const WorkerState& worker) const;
  void MoveRanges(PromptState& prompt, WorkerNumber from);
  void SendDrainOrders();

  // tick.cc
  bool RangeIsStuck(const WorkerState& worker) const;
  bool GeneratingIsStuck(const WorkerState& worker) const;
  std::string WhyStuck(const WorkerState& worker) const;
  void GiveUpSilentAndStuck();

  // single_work.cc
  bool StartSingleWork(PromptState& prompt);
  void LoseSingleWork(PromptState& prompt, const std::string& reason);
  PromptState* FindSingle(WorkerNumber worker, const AttemptRef& attempt);

  // Ends every event that can let something start.
  void Settle();

  const SchedulerOptions options_;
  const Clock clock_;
  SchedulerOutput* const output_;

  std::map<WorkerNumber, WorkerState> workers_;
  Prompts prompts_;                 // all that are not finished
  std::deque<PromptNumber> queue_;  // not started, oldest first
  std::list<PromptNumber> turns_;  // prefills that have started; the next to be given a range first
  PromptNumber prompt_last_;
  std::string last_loss_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SCHEDULER_SCHEDULER_H_
