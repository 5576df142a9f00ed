// What the front API asks of the scheduling side of the coordinator: run this prompt from that
// state on the workers there are. Keys, tenants, handles and manifests are the caller's; workers,
// ranges, attempts and recovery are the engine's.
#ifndef DELTAFILL_COORDINATOR_PROMPT_ENGINE_H_
#define DELTAFILL_COORDINATOR_PROMPT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "statestore/identity.h"
#include "statestore/store.h"

namespace deltafill {

using PromptNumber = uint64_t;  // unique for the life of the coordinator

// What a model's attention layers keep of every token.
struct LatentShape {
  std::vector<uint32_t> layers;  // ascending; empty: it has none
  uint32_t width = 0;            // values of a row
  PartDType dtype = PartDType::kF32;
};

// A model that attached workers serve. Workers with different numerics never share a prompt.
struct ServedModel {
  std::string name;
  ModelFingerprint fingerprint;
  std::string numerics;
  uint32_t vocabulary = 0;
  uint32_t layers = 0;
  uint64_t state_bytes = 0;
  uint64_t position_max = 0;  // tokens; 0: no limit
  std::vector<uint32_t> eos_ids;
  std::string tokenizer_kind;  // "" if it serves token ids only
  // Never null. Shared, for models are handed around by value and such a file can have megabytes.
  std::shared_ptr<const std::string> tokenizer_file = std::make_shared<const std::string>();
  // Shapes of the parts of one boundary state (first_token 0): what the zero state is made of.
  std::vector<PartHeader> state_parts;
  LatentShape latents;
};

// Marks an UNAVAILABLE that a worker ended its work with; the engine's own, no worker is left and
// such, are not marked.
inline absl::Status FromWorker(absl::Status status) {
  if (absl::IsUnavailable(status)) status.SetPayload("deltafill/from-worker", absl::Cord());
  return status;
}
inline bool IsFromWorker(const absl::Status& status) {
  return status.GetPayload("deltafill/from-worker").has_value();
}

struct AttachedWorker {
  std::string name;
  std::string device;
  bool draining = false;
  uint32_t ranges_queued = 0;
  uint32_t decodes_running = 0;
  ModelFingerprint fingerprint;
};

// Where a prompt starts: the zero state (boundary 0, no parts) or a stored one.
struct StartState {
  uint64_t boundary = 0;  // tokens, a multiple of 64
  std::vector<PartRef> parts;
};

enum class ScheduleChoice { kAuto, kWavefront };

struct PrefillWork {
  ModelFingerprint fingerprint;
  std::string numerics;
  std::string tenant;
  // The prompt from tokens_begin on: those before start.boundary are not needed, nor known if it
  // goes on from somebody's state.
  std::shared_ptr<const std::vector<uint32_t>> tokens;
  uint64_t tokens_begin = 0;  // at most start.boundary
  StartState start;           // boundary < end()
  // Leases on what is shared with the start state. The engine's from submission on: it renews them,
  // and gives them back with OnSharedLeases.
  std::vector<uint64_t> start_leases;
  std::vector<uint64_t>
      boundaries;  // to be stored: multiples of 64, ascending, in (start.boundary, end()]
  bool last_logits = false;
  bool any_exactness = false;
  ScheduleChoice schedule = ScheduleChoice::kAuto;

  uint64_t end() const { return tokens_begin + tokens->size(); }  // of the prompt
};

struct DecodeWork {
  ModelFingerprint fingerprint;
  std::string numerics;
  std::string tenant;
  StartState start;
  std::vector<uint32_t> tokens;  // after start.boundary; at least one
  uint32_t max_tokens = 1;
  double temperature = 0.0;
  double top_p = 1.0;
  uint64_t seed = 0;
  std::vector<uint32_t> stop_ids;
  bool save_state = false;
};

struct ExportWork {
  ModelFingerprint fingerprint;
  std::string numerics;
  std::string tenant;
  StartState start;
  std::vector<uint32_t> tokens;  // after start.boundary; at least one
};

struct PlanSummary {
  std::string schedule;
  std::string why;
  uint32_t workers = 0;
  uint32_t ranges = 0;
  uint64_t range_tokens = 0;
  double predicted_s = 0.0;
};

// All parts of one boundary, in the order of latent_parts.h; the caller publishes them. Those with
// a lease are the caller's. Those without (lease_id 0) are shared with other boundaries of the
// prompt, or with its start state: they are there until OnSharedLeases.
struct StoredBoundary {
  uint64_t boundary = 0;
  std::vector<PartReceipt> parts;
};

struct WorkTimings {
  double queue_s = 0.0;    // until the first range started
  double compute_s = 0.0;  // from then to the last range's end
  double stall_s = 0.0;
  double restore_s = 0.0;        // of compute_s: waiting for the stored start state
  uint64_t tokens_computed = 0;  // over all attempts
};

// Called on the engine's one thread; must not block. Nothing is called after OnFinished.
class PromptObserver {
 public:
  virtual ~PromptObserver() = default;
  virtual void OnPlanned(const PlanSummary& plan, uint32_t attempt) = 0;
  virtual void OnProgress(uint64_t /*tokens_done*/, uint32_t /*attempt*/) {}
  virtual void OnBoundaryStored(const StoredBoundary& /*boundary*/) {}
  // Once, just before OnFinished: leases that have kept shared parts, the caller's from now on, to
  // be released when everything reported before is published.
  virtual void OnSharedLeases(const std::vector<uint64_t>& /*lease_ids*/) {}
  virtual void OnLogits(const std::string& /*values*/) {}  // [vocabulary] float32 little-endian
  virtual void OnDecodeReady() {}
  virtual void OnDecodeToken(uint32_t /*id*/) {}
  virtual void OnExported(const std::vector<PartReceipt>& /*parts*/) {}
  // status OK: all of it is done. DATA_LOSS: the start state's parts are damaged or gone; look up
  // again. UNAVAILABLE: no worker is left. finish_reason is decoding's.
  virtual void OnFinished(const absl::Status& status, const WorkTimings& timings,
                          const std::string& finish_reason) = 0;
};

// Thread-safe.
class PromptEngine {
 public:
  virtual ~PromptEngine() = default;

  // RESOURCE_EXHAUSTED when the queue is full; UNAVAILABLE if no worker serves the model.
  virtual absl::StatusOr<PromptNumber> SubmitPrefill(PrefillWork work,
                                                     std::shared_ptr<PromptObserver> observer) = 0;
  virtual absl::StatusOr<PromptNumber> SubmitDecode(DecodeWork work,
                                                    std::shared_ptr<PromptObserver> observer) = 0;
  virtual absl::StatusOr<PromptNumber> SubmitExport(ExportWork work,
                                                    std::shared_ptr<PromptObserver> observer) = 0;
  // OnFinished(CANCELLED) follows unless it has finished already.
  virtual void Cancel(PromptNumber prompt) = 0;

  virtual std::vector<ServedModel> Models() const = 0;
  virtual std::vector<AttachedWorker> Workers() const = 0;
  // How the last worker was lost, with its name; "" if none was.
  virtual std::string LastLoss() const { return ""; }
  virtual uint32_t PromptsRunning() const = 0;
  virtual uint32_t PromptsQueued() const = 0;
};

}  // namespace deltafill

#endif  // DELTAFILL_COORDINATOR_PROMPT_ENGINE_H_
