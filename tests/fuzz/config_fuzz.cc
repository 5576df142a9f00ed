// config.json: any bytes give a configuration within its limits or INVALID_ARGUMENT.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "worker/model/config.h"
#include "worker/model/config_limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto config =
      deltafill::worker::ParseModelConfig({reinterpret_cast<const char*>(bytes), size});
  if (!config.ok()) {
    if (config.status().code() != absl::StatusCode::kInvalidArgument) std::abort();
    return 0;
  }
  const bool within =
      config->vocab_size >= 1 && config->vocab_size <= deltafill::worker::kVocabularyMax &&
      config->hidden_size <= deltafill::worker::kHiddenMax && !config->layers.empty() &&
      config->kda_heads <= deltafill::worker::kHeadsMax && config->kda_head_dim <= 128 &&
      config->kda_value_heads % config->kda_heads == 0 && config->kda_value_head_dim <= 128 &&
      config->latent.rank <= deltafill::worker::kLatentRankMax &&
      config->experts.per_token <= config->experts.count && config->gate_lower_bound >= -5.0 &&
      config->gate_lower_bound < 0.0;
  if (!within) std::abort();
  return 0;
}
