// The dense SwiGLU MLP: down(silu(gate(x)) * up(x)).
#ifndef DELTAFILL_WORKER_MODEL_DENSE_MLP_H_
#define DELTAFILL_WORKER_MODEL_DENSE_MLP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/layer.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// `prefix`: "model.layers.N.mlp.".
absl::StatusOr<std::unique_ptr<LayerMlp>> LoadDenseMlp(int64_t hidden, int64_t intermediate,
                                                       const std::string& prefix,
                                                       WeightReader& reader);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_DENSE_MLP_H_
