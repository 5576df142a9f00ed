// A model in a backend's memory: prefill of ranges and decoding steps. No prompts, protos or
// stores.
#ifndef DELTAFILL_WORKER_MODEL_MODEL_H_
#define DELTAFILL_WORKER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "statestore/identity.h"
#include "worker/model/boundary_port.h"
#include "worker/model/config.h"
#include "worker/model/latent_cache.h"
#include "worker/model/load_progress.h"
#include "worker/model/state_layout.h"
#include "worker/model/tokenizer_file.h"

namespace deltafill::worker {

// One range of one prompt, to be run through all layers. Ranges of one call are of different
// prompts: their recurrent states are awaited together, before any is handed on.
struct RangeWork {
  std::span<const uint32_t> tokens;  // at least one; ids below the vocabulary size
  std::vector<int64_t> captures;  // token counts from the range's start; multiples of 64, ascending
  BoundaryPort* port = nullptr;
};

// One sequence's next token in a decoding step.
struct DecodeRow {
  uint32_t token = 0;
  uint64_t position = 0;  // of the token
  void* state = nullptr;  // prefix state buffer laid out by state_layout(), updated in place
  LatentCache* latents = nullptr;  // with room for the position; models with attention layers only
};

// An execution lane: operators and the scratch that a pass over at most rows_max rows needs. Sized
// once; no allocation afterwards. One thread at a time.
class Lane;

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const ModelFingerprint& fingerprint() const = 0;
  virtual const StateLayout& state_layout() const = 0;
  virtual kernels::Backend& backend() const = 0;

  // RESOURCE_EXHAUSTED with the sizes if the scratch does not fit.
  virtual absl::StatusOr<std::shared_ptr<Lane>> NewLane(int threads, int64_t rows_max) = 0;

  // Runs the ranges, packed, through all layers. Row-invariant: a range's bits do not depend on
  // what it is packed with. The sum of their tokens is at most the lane's rows_max
  // (INVALID_ARGUMENT naming the field otherwise). The first error of any range's port ends the
  // call for all of them.
  virtual absl::Status Prefill(Lane& lane, std::span<const RangeWork> ranges) = 0;

  // Logits of the last token of each range of the last Prefill on this lane: host
  // [ranges, vocabulary] row-major. Waits for the lane.
  virtual absl::Status LastLogits(Lane& lane, std::span<float> logits) = 0;

  // One token for each of rows.size() independent sequences. logits: host [rows, vocabulary].
  virtual absl::Status DecodeStep(Lane& lane, std::span<const DecodeRow> rows,
                                  std::span<float> logits) = 0;
};

struct LoadOptions {
  // Weights from this seed by the rules of `model init`, and none of the directory's safetensors:
  // for benchmarks. The fingerprint is no checkpoint's.
  std::optional<uint64_t> random_seed;
  LogLine log;  // progress; may be empty
};

// Loads a Hugging Face model directory (config.json and safetensors) into the backend's memory. The
// directory may be read-only. The backend's numerics are settled when it returns. NOT_FOUND if
// config.json or the safetensors files are missing; INVALID_ARGUMENT naming the key of config.json;
// DATA_LOSS naming file and tensor; RESOURCE_EXHAUSTED if the weights do not fit; UNIMPLEMENTED if
// the backend lacks what a layer needs.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& directory,
                                                 std::shared_ptr<kernels::Backend> backend,
                                                 const LoadOptions& options = {});

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_MODEL_H_
