// What a model directory holds, without loading it.
#ifndef DELTAFILL_WORKER_MODEL_INSPECT_H_
#define DELTAFILL_WORKER_MODEL_INSPECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "statestore/identity.h"
#include "worker/model/config.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

struct TensorDescription {
  std::string name;
  std::string dtype;  // as the file spells it
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::string file;  // its name in the directory
};

struct ModelDescription {
  ModelConfig config;
  std::vector<TensorDescription> tensors;  // by name
  uint64_t parameters = 0;                 // elements of all tensors
  uint64_t weight_bytes = 0;
  StateLayout state_layout;  // .bytes: one prefix state, latents aside
  ModelFingerprint fingerprint;
  std::string tokenizer_kind;  // "" if the directory serves token ids only
};

// Errors as LoadModel's, except that layers of any kind are described. May write the fingerprint's
// cache into the directory.
absl::StatusOr<ModelDescription> InspectModel(const std::string& directory);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_INSPECT_H_
