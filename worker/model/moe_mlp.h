// A mixture of experts beside shared experts as a layer's MLP (Kimi-Linear's
// `block_sparse_moe`). kernels/mixture_of_experts.h has the equations.
#ifndef DELTAFILL_WORKER_MODEL_MOE_MLP_H_
#define DELTAFILL_WORKER_MODEL_MOE_MLP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/config.h"
#include "worker/model/layer.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// `prefix`: "model.layers.N.block_sparse_moe.". Experts are loaded in parallel, each straight into
// the backend's form: beside the weights there is one expert's copy a thread.
absl::StatusOr<std::unique_ptr<LayerMlp>> LoadMoeMlp(const ModelConfig& config,
                                                     const std::string& prefix,
                                                     WeightReader& reader);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_MOE_MLP_H_
