// Kimi Delta Attention as a sequence mixer (Kimi Linear, arXiv:2510.26692, section 3).
#ifndef DELTAFILL_WORKER_MODEL_KDA_MIXER_H_
#define DELTAFILL_WORKER_MODEL_KDA_MIXER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/config.h"
#include "worker/model/layer.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// `prefix`: "model.layers.N.self_attn." or the family's own. `layout` outlives the mixer.
absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadKdaMixer(const ModelConfig& config,
                                                            const StateLayout& layout,
                                                            uint32_t layer,
                                                            const std::string& prefix,
                                                            WeightReader& reader);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_KDA_MIXER_H_
