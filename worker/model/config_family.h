// What the families' config.json say beyond the keys that they share.
#ifndef DELTAFILL_WORKER_MODEL_CONFIG_FAMILY_H_
#define DELTAFILL_WORKER_MODEL_CONFIG_FAMILY_H_

#include "absl/status/status.h"
#include "worker/model/config.h"
#include "worker/model/config_section.h"

namespace deltafill::worker {

// Each reads `root` into *config, whose sizes, eos ids and number of layers are there already.
absl::Status ReadKimiLinear(const ConfigSection& root, ModelConfig* config);
absl::Status ReadFlaKda(const ConfigSection& root, ModelConfig* config);

// KDA's heads and convolution, under the names of the section at hand.
struct KdaHeadKeys {
  const char* heads;
  const char* head_dim;
  const char* conv_size;
};
absl::Status ReadKdaHeads(const ConfigSection& section, const KdaHeadKeys& keys,
                          ModelConfig* config);

// Of latent attention and experts, as the layers' kinds need them.
absl::Status ReadLatentAttention(const ConfigSection& root, ModelConfig* config);
absl::Status ReadExperts(const ConfigSection& root, ModelConfig* config);

// The switches in the object `deltafill`; ModelConfig says which.
absl::Status ReadSwitches(const ConfigSection& root, ModelConfig* config);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CONFIG_FAMILY_H_
