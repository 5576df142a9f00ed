// config.json of a model that init makes.
#ifndef DELTAFILL_WORKER_MODEL_INIT_CONFIG_H_
#define DELTAFILL_WORKER_MODEL_INIT_CONFIG_H_

#include <cstdint>
#include <string>

#include "worker/model/config.h"

namespace deltafill::worker {

// Special tokens of the bytes tokenizer that init writes.
inline constexpr uint32_t kInitBosId = 256;
inline constexpr uint32_t kInitPadId = 258;

// The text of config.json in the public form of Kimi-Linear: ParseModelConfig reads `config` back
// from it. The first of the eos ids must be there.
std::string InitialConfigText(const ModelConfig& config);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_INIT_CONFIG_H_
