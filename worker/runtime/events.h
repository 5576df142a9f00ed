// What a worker reports to its coordinator, as plain structs (see commands.h).
#ifndef DELTAFILL_WORKER_RUNTIME_EVENTS_H_
#define DELTAFILL_WORKER_RUNTIME_EVENTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "statestore/store.h"
#include "worker/exchange/boundary_exchange.h"

namespace deltafill::worker {

struct WorkerHeartbeat {
  uint64_t save_queue_bytes = 0;
  double stall_s = 0;     // since the last heartbeat
  bool draining = false;  // wants to leave
};

struct RangeProgress {
  AttemptKey attempt;
  uint32_t range = 0;
  uint32_t layers_done = 0;
};

struct RangeDone {
  AttemptKey attempt;
  uint32_t range = 0;
  double compute_s = 0;
  double wait_s = 0;     // for peers
  double restore_s = 0;  // of compute_s: for the stored start state
};

struct BoundaryStored {
  AttemptKey attempt;
  uint64_t boundary = 0;
  std::vector<PartReceipt> parts;
  bool skipped = false;
};

// A whole piece of the attempt's latents is in the store.
struct LatentPieceStored {
  AttemptKey attempt;
  uint64_t end = 0;  // token
  PartReceipt part;
};

struct LastLogits {
  AttemptKey attempt;
  std::vector<float> values;  // [vocabulary]
};

struct AttemptFailed {
  AttemptKey attempt;
  absl::Status status;
  bool stored_state_lost = false;
  bool peer_lost = false;
};

struct DecodeReady {
  AttemptKey attempt;
};

struct DecodeToken {
  AttemptKey attempt;
  uint32_t id = 0;
};

struct DecodeFinished {
  AttemptKey attempt;
  std::string finish_reason;  // "length", "stop"
  bool has_saved = false;
  BoundaryStored saved;  // with save_state; boundary 0 without parts if no block was complete
};

struct ExportReady {
  AttemptKey attempt;
  std::vector<PartReceipt> parts;
};

struct WorkerDrained {};

// This worker can compute no more. The last event: the agent leaves the coordinator after it.
struct WorkerFailed {
  absl::Status status;
};

using WorkerEvent =
    std::variant<WorkerHeartbeat, RangeProgress, RangeDone, BoundaryStored, LatentPieceStored,
                 LastLogits, AttemptFailed, DecodeReady, DecodeToken, DecodeFinished, ExportReady,
                 WorkerDrained, WorkerFailed>;

// Where the lanes send their events. Thread-safe; never blocks.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void Emit(WorkerEvent event) = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_EVENTS_H_
