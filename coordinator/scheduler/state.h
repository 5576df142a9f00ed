// What the scheduler knows: workers, prompts and their attempts. Plain structs; scheduler.h has the
// events that change them.
#ifndef DELTAFILL_COORDINATOR_SCHEDULER_STATE_H_
#define DELTAFILL_COORDINATOR_SCHEDULER_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/planner/plan.h"
#include "coordinator/prompt_engine.h"
#include "coordinator/scheduler/orders.h"

namespace deltafill::coordinator {

struct SchedulerOptions {
  PlanOptions plan;
  // Prompts are numbered from the next one on. Workers and their links outlive a coordinator, and
  // tell prompts by their numbers: another coordinator's must not come again.
  PromptNumber prompt_last = 0;
  uint32_t prompts_running_max = 16;  // prefills
  uint32_t prompts_queued_max = 256;  // of every kind
  uint32_t ranges_queued_max = 2;     // given ahead to a worker; see dispatch.cc for the bound
  uint32_t failures_max = 8;          // attempts in a row that got no further
  double recovery_interval_s = 30.0;  // 0: no recovery boundaries
  double heartbeat_timeout_s = 10.0;
  // A worker that computes a range which waits for nothing, or generates tokens, and reports no
  // progress of it for this long, is lost however well it answers; it reports each layer, each
  // token, and what it saves. 0: never.
  double progress_timeout_s = 300.0;
  double worker_grace_s = 5.0;     // waiting for a worker of the model to attach
  double peer_retry_s = 1.0;       // after a hand-over failed, if no loss is noticed before
  double lease_renewal_s = 120.0;  // leases last 10 minutes
};

struct GivenRange {
  AttemptRef attempt;
  uint32_t range = 0;
  double predicted_s = 0.0;
};

struct WorkerState {
  WorkerProfile profile;
  double heard_s = 0.0;
  double progressed_s = 0.0;           // last report of work, or a new range at the front
  double generated_s = 0.0;            // last token, or beginning, of a decoding
  bool draining = false;               // gets nothing new
  bool drain_sent = false;             // was told so: everything promised to it has been given
  bool drained = false;                // said that nothing is left
  std::deque<GivenRange> queue;        // in the order given; the front one is being computed
  std::set<PromptNumber> single_work;  // decodes and exports
  uint64_t save_queue_bytes = 0;
};

// A stored boundary that an attempt can start from.
struct KeptBoundary {
  std::vector<PartRef> parts;
  bool recovery = false;
  // Recovery boundaries only: requested ones are the caller's. Not those of whole pieces of
  // latents.
  std::vector<uint64_t> lease_ids;
  double renewed_s = 0.0;
};

struct RangeState {
  bool done = false;
  uint32_t layers_done = 0;
};

enum class PromptPhase {
  kQueued,
  kRunning,
  kRetrying,      // until wait_until_s, then the next attempt
  kWithoutWorker  // until wait_until_s, then UNAVAILABLE; a worker that attaches ends the wait
};

// A prompt that is prefilled, with what is the same in every attempt first.
struct PrefillState {
  PrefillWork work;
  std::set<uint64_t> pending;  // requested boundaries that are not stored yet
  bool logits_pending = false;
  std::map<uint64_t, KeptBoundary> kept;  // by boundary

  // Models with attention layers (latents.cc).
  bool has_latents = false;
  std::map<uint64_t, PartReceipt> pieces;  // whole ones after the start's that are stored, by end
  std::map<uint64_t, StoredBoundary> waiting;  // stored, but for pieces before them
  double pieces_renewed_s = 0.0;               // their leases and those of `waiting`

  // The current attempt.
  uint64_t start_boundary = 0;
  bool started_from_kept = false;  // else from work.start
  uint64_t end_token = 0;
  uint32_t layers = 1;
  std::vector<TokenRange> spans;
  std::vector<WorkerNumber> placement;  // a range
  std::vector<RangeState> ranges;
  std::set<WorkerNumber> placed;           // have ranges; their latents count at these workers
  std::set<WorkerNumber> involved;         // were given a range or named as the next
  std::map<WorkerNumber, uint64_t> holds;  // workers that keep latents: of so many tokens
  uint32_t next_range = 0;                 // the first that was not given yet
  uint32_t started_end = 0;                // ranges before it are known to have started
  uint32_t ranges_done = 0;
  uint64_t layer_tokens_done = 0;  // sum over ranges of tokens x layers done
  uint64_t tokens_reported = 0;
  double progressed_s = 0.0;      // last report of a range
  double boundary_asked_s = 0.0;  // when a range with a boundary at its end was last given
};

// A decode or an export: runs on one worker from end to end.
struct SingleWorkState {
  std::shared_ptr<const DecodeWork> decode;  // one of the two
  std::shared_ptr<const ExportWork> exported;
  WorkerNumber worker = 0;
  bool ready_reported = false;
  uint32_t tokens_reported = 0;
};

struct PromptState {
  PromptNumber number = 0;
  uint32_t attempt = 0;  // 0: none yet
  PromptPhase phase = PromptPhase::kQueued;
  std::shared_ptr<PromptObserver> observer;
  ModelFingerprint fingerprint;
  std::string numerics;
  bool has_latents = false;    // the model has attention layers
  double wait_until_s = -1.0;  // < 0: not waiting
  uint32_t failures = 0;       // in a row without getting further
  double submitted_s = 0.0;
  double started_s = -1.0;
  double last_done_s = -1.0;
  WorkTimings timings;
  // One of the two.
  std::unique_ptr<PrefillState> prefill;
  std::unique_ptr<SingleWorkState> single;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SCHEDULER_STATE_H_
