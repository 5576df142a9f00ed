// What a worker says of itself when it attaches to a coordinator.
#ifndef DELTAFILL_WORKER_RUNTIME_WORKER_PROFILE_H_
#define DELTAFILL_WORKER_RUNTIME_WORKER_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "statestore/identity.h"
#include "statestore/part.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// Seconds for a range of n tokens after p others at one layer of attention:
// fixed_s + n * token_s + (p + n) * key_s + n * (p + n / 2) * pair_s.
struct AttentionCosts {
  double fixed_s = 0;
  double token_s = 0;
  double pair_s = 0;             // a query and a key
  double handover_fraction = 0;  // of fixed_s + n * token_s, after which the latents are made
  double row_exchange_s = 0;     // the latents of one token to a neighbour
  double key_s = 0;              // a key that is seen, own and earlier: expanding its latents
  double exchange_s = 0;         // beside that: one message of a layer's latents, whatever its rows
};

// Seconds for a range of n tokens at one layer: layer_fixed_s + n * layer_token_s.
struct CostConstants {
  double layer_fixed_s = 0;
  double layer_token_s = 0;
  double range_fixed_s = 0;      // embedding, logits, starting a range
  double handover_fraction = 0;  // of a layer's time, after which its boundary state is handed on
  double exchange_s = 0;         // one boundary state of a layer with a recurrence to a neighbour
  AttentionCosts attention;      // models with attention layers only
};

struct WorkerProfile {
  std::string name;              // unique among attached workers
  std::string exchange_address;  // where peers reach it; "" in process
  std::string device;            // for people
  uint64_t range_tokens_max = 0;
  uint64_t latent_tokens_max = 0;  // of all prompts together; models with attention layers only
  uint32_t decode_batch_max = 0;
  CostConstants costs;
  // The model.
  std::string model_name;
  ModelFingerprint fingerprint;
  std::string numerics;
  uint32_t vocabulary = 0;
  uint32_t layers = 0;
  uint64_t state_bytes = 0;
  uint64_t position_max = 0;
  std::vector<uint32_t> eos_ids;
  std::string tokenizer_kind;
  std::string tokenizer_file;
  std::vector<PartHeader> state_parts;  // shapes; boundary 0
  LatentLayout latents;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_WORKER_PROFILE_H_
