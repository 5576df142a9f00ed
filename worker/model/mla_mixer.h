// Multi-head latent attention as a sequence mixer. kernels/latent_attention.h has the equations.
#ifndef DELTAFILL_WORKER_MODEL_MLA_MIXER_H_
#define DELTAFILL_WORKER_MODEL_MLA_MIXER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/config.h"
#include "worker/model/layer.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// `prefix`: "model.layers.N.self_attn.".
absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMlaMixer(const ModelConfig& config,
                                                            uint32_t layer,
                                                            const std::string& prefix,
                                                            WeightReader& reader);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_MLA_MIXER_H_
