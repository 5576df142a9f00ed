// Between the engine's thread and a call's thread: what the engine reports waits here until the
// call takes it, so that a slow client or a slow store never holds the engine up.
#ifndef DELTAFILL_COORDINATOR_FRONT_PROMPT_SESSION_H_
#define DELTAFILL_COORDINATOR_FRONT_PROMPT_SESSION_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/prompt_engine.h"

namespace deltafill::coordinator {

struct PlannedEvent {
  PlanSummary plan;
  uint32_t attempt = 0;
};
struct ProgressEvent {
  uint64_t tokens_done = 0;
  uint32_t attempt = 0;
};
struct LogitsEvent {
  std::string values;
};
struct DecodeReadyEvent {};
struct DecodeTokenEvent {
  uint32_t id = 0;
};
struct SharedLeasesEvent {
  std::vector<uint64_t> lease_ids;
};
struct ExportedEvent {
  std::vector<PartReceipt> parts;
};
struct FinishedEvent {
  absl::Status status;
  WorkTimings timings;
  std::string finish_reason;
};
using PromptEvent =
    std::variant<PlannedEvent, ProgressEvent, StoredBoundary, LogitsEvent, DecodeReadyEvent,
                 DecodeTokenEvent, ExportedEvent, SharedLeasesEvent, FinishedEvent>;

// Thread-safe. Holds at most one event a boundary and token of the request, and one progress.
class PromptSession final : public PromptObserver {
 public:
  // Waits for the next event; false if none came in time. Logits go before everything else,
  // whatever waits to be published. After FinishedEvent there are no more.
  bool Next(std::chrono::milliseconds timeout, PromptEvent* event);

  void OnPlanned(const PlanSummary& plan, uint32_t attempt) override;
  void OnProgress(uint64_t tokens_done, uint32_t attempt) override;
  void OnBoundaryStored(const StoredBoundary& boundary) override;
  void OnLogits(const std::string& values) override;
  void OnDecodeReady() override;
  void OnDecodeToken(uint32_t id) override;
  void OnExported(const std::vector<PartReceipt>& parts) override;
  void OnSharedLeases(const std::vector<uint64_t>& lease_ids) override;
  void OnFinished(const absl::Status& status, const WorkTimings& timings,
                  const std::string& finish_reason) override;

 private:
  void Push(PromptEvent event);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<PromptEvent> events_;  // under mutex_
};

// Takes a session's events until it has finished, and hands each to `handle`. If `cancelled` turns
// true or `handle` fails, the prompt is cancelled (within kCancelPoll) and the remaining events are
// still handed over, so that finished checkpoints are published; a failed `handle` is not called
// again and the leases of what is left are given back, as are shared ones after all that was handed
// over before. Returns handle's failure, CANCELLED, or else
// FinishedEvent's status.
absl::Status DrainPrompt(PromptEngine& engine, StateStore& store, PromptNumber prompt,
                         PromptSession& session, const std::function<bool()>& cancelled,
                         const std::function<absl::Status(PromptEvent&)>& handle);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PROMPT_SESSION_H_
