// What the coordinator asks of a worker, as plain structs (proto/worker.proto has the same
// messages; wire.cc converts). Values are checked on conversion: see FromWire.
#ifndef DELTAFILL_WORKER_RUNTIME_COMMANDS_H_
#define DELTAFILL_WORKER_RUNTIME_COMMANDS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "statestore/identity.h"
#include "worker/exchange/boundary_exchange.h"

namespace deltafill::worker {

// The state before a command's first token.
struct StateSource {
  enum class From : uint8_t { kZero, kStored, kPeer };
  From from = From::kZero;
  std::vector<PartId> parts;  // kStored: one a kind
};

struct BoundaryWanted {
  uint64_t boundary = 0;  // tokens from the prompt's start, a multiple of 64
  bool recovery = false;  // may be skipped
};

// What a range needs to know of its attempt's latents. The worker holds those of all tokens before
// its ranges: from the store up to attempt_start, from the worker of the previous range after that.
struct RangeLatents {
  uint64_t attempt_start = 0;
  uint64_t attempt_end = 0;  // room for so many tokens is claimed at once
  // Of [0, attempt_start); with the worker's first range of the attempt, or its first after one
  // without `keep`.
  std::vector<PartId> stored;
  uint64_t next_holds = 0;       // with hand_on: the next worker has the latents before this token
  std::vector<uint64_t> pieces;  // ends of whole pieces to put: ascending, inside the range
  bool keep = false;             // a later range of the attempt comes to this worker too
};

struct RangeCommand {
  AttemptKey attempt;
  uint32_t range = 0;
  uint64_t first_token = 0;      // a multiple of 64
  std::vector<uint32_t> tokens;  // at least one
  StateSource source;
  bool hand_on = false;
  ExchangeTarget next;                     // with hand_on
  std::vector<BoundaryWanted> boundaries;  // ascending, in (first_token, first_token + tokens]
  bool last_logits = false;
  std::string tenant;
  RangeLatents latents;  // models with attention layers only
};

struct SamplingParams {
  double temperature = 0.0;  // 0: greedy
  double top_p = 1.0;        // in (0, 1]
  uint64_t seed = 0;
};

struct DecodeCommand {
  AttemptKey attempt;
  uint64_t first_token = 0;            // a multiple of 64
  std::vector<uint32_t> tokens;        // at least one
  StateSource source;                  // kZero or kStored
  std::vector<PartId> stored_latents;  // of [0, first_token)
  uint32_t max_tokens = 0;
  SamplingParams sampling;
  std::vector<uint32_t> stop_ids;
  bool save_state = false;
  std::string tenant;
};

struct ExportCommand {
  AttemptKey attempt;
  uint64_t first_token = 0;      // a multiple of 64
  std::vector<uint32_t> tokens;  // at least one
  StateSource source;            // kZero or kStored
  std::string tenant;
  std::vector<PartId> stored_latents;  // of [0, first_token)
};

struct AbortCommand {
  AttemptKey attempt;
};

struct DrainCommand {};

struct WelcomeCommand {
  uint32_t worker = 0;
  uint32_t heartbeat_ms = 1000;
};

using WorkerCommand = std::variant<WelcomeCommand, RangeCommand, AbortCommand, DecodeCommand,
                                   ExportCommand, DrainCommand>;

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_COMMANDS_H_
