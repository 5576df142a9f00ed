// One prefill from lookup to the last published boundary: what Prefill does, and what Decode does
// first with a long prompt.
#ifndef DELTAFILL_COORDINATOR_FRONT_PREFILL_RUN_H_
#define DELTAFILL_COORDINATOR_FRONT_PREFILL_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/checkpoint_request.h"
#include "coordinator/front/keyed_prompt.h"
#include "coordinator/front/prefix_lookup.h"
#include "coordinator/front/progress_rate.h"
#include "coordinator/front/prompt_session.h"
#include "coordinator/front/publish.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct PrefillAsk {
  std::vector<RequestedBoundary> requested;  // ascending
  bool no_resume = false;
  bool return_logits = false;
  bool any_exactness = false;
  ScheduleChoice schedule = ScheduleChoice::kAuto;
};

// What a run reports as it happens, on the caller's thread. After a method has failed (the caller
// is gone) none is called any more, and the run is cancelled; what is finished by then is still
// published.
class PrefillListener {
 public:
  virtual ~PrefillListener() = default;
  virtual absl::Status OnAccepted(uint64_t cached_tokens, const std::string& miss_reason,
                                  const PlanSummary& plan) = 0;  // once, first
  virtual absl::Status OnProgress(const ProgressReport& report, uint32_t attempt) = 0;
  virtual absl::Status OnCheckpoint(const RequestedBoundary& requested,
                                    const PublishedState& state) = 0;  // once each; it is durable
  virtual absl::Status OnLogits(const std::string& values) = 0;        // at most once
};

struct PrefillOutcome {
  PublishedState final_state;  // at FinalBoundary; no parts at boundary 0
  uint64_t cached_tokens = 0;
  std::string miss_reason;
  std::string schedule;  // "none" if nothing had to be computed
  WorkTimings work;      // sums over submissions
  uint32_t attempts = 0;
  double lookup_s = 0.0;
  double save_s = 0.0;  // from the last computed token to the last published boundary
};

class PrefillRun {
 public:
  // All references must outlive the run.
  PrefillRun(StateStore& store, PromptEngine& engine, const KeyedPrompt& prompt,
             const PrefillAsk& ask, PrefillListener& listener,
             const std::function<bool()>& cancelled);

  // Looks up, computes and publishes; once. A start state that the engine finds lost is looked
  // up again, at most kSubmissionsMax times (then DATA_LOSS). What is published when it fails
  // stays.
  absl::StatusOr<PrefillOutcome> Run();

 private:
  absl::StatusOr<PrefillStart> LookUp(bool first);
  bool IsWorkFor(const PrefillStart& start) const;
  absl::Status Submit();
  PrefillWork MakeWork() const;
  absl::Status Handle(PromptEvent& event);
  void HandleProgress(const ProgressEvent& progress);
  absl::Status HandleStored(const StoredBoundary& stored);
  void HandleLogits(const LogitsEvent& logits);
  void HandleFinished(const FinishedEvent& finished);
  void Accept(const PlanSummary& plan);
  void ReportStored();
  void Report(const PublishedState& state);
  bool Abandoned() const { return !listening_.ok() || cancelled_(); }
  absl::Status CheckComplete() const;
  void Conclude();

  StateStore& store_;
  PromptEngine& engine_;
  const KeyedPrompt& prompt_;
  const PrefillAsk& ask_;
  PrefillListener& listener_;
  const std::function<bool()>& cancelled_;

  const uint64_t final_boundary_;
  std::vector<uint64_t> wanted_;                // requested and final, ascending
  std::map<uint64_t, PublishedState> present_;  // wanted boundaries that are there
  std::set<uint64_t> reported_;                 // requested ones
  PrefillStart start_;
  PrefillOutcome outcome_;
  ProgressRate rate_;
  ProgressRate::Clock::time_point computed_at_;
  uint32_t attempts_before_ = 0;  // of earlier submissions
  absl::Status listening_;        // the listener's first failure
  bool accepted_ = false;
  bool logits_sent_ = false;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PREFILL_RUN_H_
