// What the scheduler tells workers: the commands of proto/worker.proto as plain structs, and the
// interface that carries them out.
#ifndef DELTAFILL_COORDINATOR_SCHEDULER_ORDERS_H_
#define DELTAFILL_COORDINATOR_SCHEDULER_ORDERS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/planner/grid.h"
#include "coordinator/prompt_engine.h"

namespace deltafill::coordinator {

using WorkerNumber = uint32_t;  // unique for the life of the coordinator

// One try at one prompt.
struct AttemptRef {
  PromptNumber prompt = 0;
  uint32_t attempt = 0;  // from 1
  friend auto operator<=>(const AttemptRef&, const AttemptRef&) = default;
};

// A worker as it introduced itself.
struct WorkerProfile {
  WorkerNumber number = 0;
  std::string name;
  std::string device;
  std::string exchange_address;  // "" in one process
  ServedModel model;
  WorkerCosts costs;
  uint64_t range_tokens_max = 0;
  // That its latents have room for, those of all prompts together; models with attention layers.
  uint64_t latent_tokens_max = std::numeric_limits<uint64_t>::max();
  uint32_t decode_batch_max = 16;  // decodes and exports that it runs at once
};

// The boundary state that work starts from.
struct SourceOrder {
  enum class Kind { kZero, kStored, kPeer };
  Kind kind = Kind::kZero;
  std::vector<PartId> part_ids;  // kStored; latents aside
  WorkerNumber peer = 0;         // kPeer: who runs the previous range
};

struct BoundaryOrder {
  uint64_t boundary = 0;
  bool recovery = false;
  friend bool operator==(const BoundaryOrder&, const BoundaryOrder&) = default;
};

// Models with attention layers: which latents the worker has, gets and stores. See RangeLatents in
// proto/worker.proto.
struct LatentOrder {
  uint64_t attempt_start = 0;
  uint64_t attempt_end = 0;
  std::vector<PartId> stored;  // of [0, attempt_start), if the worker has them not
  uint64_t next_holds = 0;
  std::vector<uint64_t> piece_ends;
  bool keep = false;
};

struct RangeOrder {
  AttemptRef attempt;
  uint32_t range = 0;
  TokenRange span;
  std::shared_ptr<const std::vector<uint32_t>> tokens;  // of the prompt; span is a part of them
  uint64_t tokens_begin = 0;                            // where they begin
  SourceOrder source;
  bool hand_on = false;                   // the next range needs this one's end
  WorkerNumber next = 0;                  // who will run it, if hand_on
  std::string next_address;               // its exchange
  std::vector<BoundaryOrder> boundaries;  // ascending, in (span.first_token, end]
  bool last_logits = false;
  std::string tenant;
  LatentOrder latents;
};

struct DecodeOrder {
  AttemptRef attempt;
  std::shared_ptr<const DecodeWork> work;
};

struct ExportOrder {
  AttemptRef attempt;
  std::shared_ptr<const ExportWork> work;
};

struct AbortOrder {
  AttemptRef attempt;
};

struct DrainOrder {};

using WorkerOrder = std::variant<RangeOrder, DecodeOrder, ExportOrder, AbortOrder, DrainOrder>;

// Carries out what the scheduler decides. Called on the scheduler's thread; must neither block nor
// call the scheduler back.
class SchedulerOutput {
 public:
  virtual ~SchedulerOutput() = default;

  // To one worker in the order of the calls. A worker that is gone by now is not an error.
  virtual void Send(WorkerNumber worker, const WorkerOrder& order) = 0;

  // The scheduler has given the worker up (silent, or stuck): its stream must end.
  virtual void CloseWorker(WorkerNumber worker, const absl::Status& reason) = 0;

  virtual void RenewLeases(const std::vector<uint64_t>& lease_ids) = 0;
  virtual void ReleaseLeases(const std::vector<uint64_t>& lease_ids) = 0;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SCHEDULER_ORDERS_H_
