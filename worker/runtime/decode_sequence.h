// One decoding, or one export of a state at its exact end, as the decode lane carries it along.
#ifndef DELTAFILL_WORKER_RUNTIME_DECODE_SEQUENCE_H_
#define DELTAFILL_WORKER_RUNTIME_DECODE_SEQUENCE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/runtime/commands.h"
#include "worker/runtime/latent_pool.h"
#include "worker/runtime/state_pool.h"

namespace deltafill::worker {

// A prefix state and how many of the sequence's tokens are in it.
struct SequenceState {
  StateBufferRef buffer;
  bool is_zero = true;  // the buffer's contents do not matter: token 0
  size_t tokens = 0;    // counted from the command's first token
};

struct DecodeSequence {
  enum class Phase : uint8_t {
    kPrompt,    // the command's tokens are being prefilled
    kDecoding,  // one token a step
    kSaving,    // the generated tokens are being prefilled, up to the last block end
    kDone,      // nothing is left for the lane to do
  };

  DecodeCommand command;  // an export has max_tokens 0 and no sampling
  bool is_export = false;
  AttemptFlagRef flag;
  Phase phase = Phase::kPrompt;
  std::vector<uint32_t> tokens;  // the command's and the generated ones
  SequenceState current;         // tokens[0, current.tokens)
  // With save_state: the state at the last block end that leaves at least one prompt token. What is
  // kept after decoding comes from prefilling, so decoding steps must not touch it.
  SequenceState kept;
  // Of tokens [0, first_token + current.tokens), if there are attention layers. Prefilling the
  // answer overwrites the rows that decoding wrote, so `kept` needs none of its own.
  std::shared_ptr<SequenceLatents> latents;
  std::chrono::steady_clock::time_point asked;  // for room for them
  std::string finish_reason;

  size_t generated() const { return tokens.size() - command.tokens.size(); }
};

// The last block end that leaves at least one of `tokens` tokens.
inline size_t TailStart(size_t tokens) {
  return (tokens - 1) / kBlockTokenCount * kBlockTokenCount;
}

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_DECODE_SEQUENCE_H_
