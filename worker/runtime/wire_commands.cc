#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/wire.h"

namespace deltafill::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids travel little-endian");

AttemptKey FromWire(const v1::AttemptId& attempt) { return {attempt.prompt(), attempt.attempt()}; }

absl::StatusOr<std::vector<uint32_t>> TokensFromWire(const std::string& bytes) {
  if (bytes.size() % sizeof(uint32_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: ", bytes.size(), " bytes are not whole 4-byte ids"));
  }
  std::vector<uint32_t> tokens(bytes.size() / sizeof(uint32_t));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

template <typename Ids>
absl::StatusOr<std::vector<PartId>> PartIdsFromWire(const Ids& raw_ids, const char* field) {
  std::vector<PartId> ids;
  for (const std::string& raw : raw_ids) {
    PartId id;
    if (!PartId::FromBytes(raw, &id)) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": an id must have 32 bytes"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<StateSource> SourceFromWire(const v1::RangeSource& message) {
  StateSource source;
  switch (message.source_case()) {
    case v1::RangeSource::kZero:
      source.from = StateSource::From::kZero;
      return source;
    case v1::RangeSource::kPeer:
      source.from = StateSource::From::kPeer;
      return source;
    case v1::RangeSource::kStored:
      break;
    case v1::RangeSource::SOURCE_NOT_SET:
      return absl::InvalidArgumentError("source: not set");
  }
  source.from = StateSource::From::kStored;
  DELTAFILL_TRY_ASSIGN(parts,
                       PartIdsFromWire(message.stored().part_ids(), "source.stored.part_ids"));
  source.parts = std::move(parts);
  return source;
}

// What ranges, decodes and exports have in common: whose tokens, from which state on.
template <typename Message, typename Command>
absl::Status ReadWork(const Message& message, Command* command) {
  command->attempt = FromWire(message.attempt());
  command->first_token = message.first_token();
  DELTAFILL_TRY_ASSIGN(tokens, TokensFromWire(message.tokens()));
  command->tokens = std::move(tokens);
  DELTAFILL_TRY_ASSIGN(source, SourceFromWire(message.source()));
  command->source = std::move(source);
  command->tenant = message.tenant();
  return absl::OkStatus();
}

absl::StatusOr<WorkerCommand> FromWire(const v1::RunRange& message) {
  RangeCommand command;
  DELTAFILL_TRY(ReadWork(message, &command));
  command.range = message.range();
  command.hand_on = message.hand_on();
  command.next = {message.next().worker(), message.next().exchange_address()};
  for (const v1::BoundaryRequest& wanted : message.boundaries()) {
    command.boundaries.push_back({wanted.boundary(), wanted.recovery()});
  }
  command.last_logits = message.last_logits();
  const v1::RangeLatents& latents = message.latents();
  DELTAFILL_TRY_ASSIGN(stored,
                       PartIdsFromWire(latents.stored_part_ids(), "latents.stored_part_ids"));
  command.latents.attempt_start = latents.attempt_start();
  command.latents.attempt_end = latents.attempt_end();
  command.latents.stored = std::move(stored);
  command.latents.next_holds = latents.next_holds();
  command.latents.pieces.assign(latents.piece_ends().begin(), latents.piece_ends().end());
  command.latents.keep = latents.keep();
  return command;
}

absl::StatusOr<WorkerCommand> FromWire(const v1::RunDecode& message) {
  DecodeCommand command;
  DELTAFILL_TRY(ReadWork(message, &command));
  DELTAFILL_TRY_ASSIGN(latents, PartIdsFromWire(message.latent_part_ids(), "latent_part_ids"));
  command.stored_latents = std::move(latents);
  command.max_tokens = message.max_tokens();
  command.sampling = {message.temperature(), message.top_p(), message.seed()};
  // Not set means the whole distribution.
  if (command.sampling.top_p == 0.0) command.sampling.top_p = 1.0;
  if (!(command.sampling.temperature >= 0.0) || !std::isfinite(command.sampling.temperature)) {
    return absl::InvalidArgumentError("temperature: must be finite and not negative");
  }
  if (!(command.sampling.top_p > 0.0 && command.sampling.top_p <= 1.0)) {
    return absl::InvalidArgumentError("top_p: must be in (0, 1]");
  }
  command.stop_ids.assign(message.stop_ids().begin(), message.stop_ids().end());
  command.save_state = message.save_state();
  return command;
}

absl::StatusOr<WorkerCommand> FromWire(const v1::RunExport& message) {
  ExportCommand command;
  DELTAFILL_TRY(ReadWork(message, &command));
  DELTAFILL_TRY_ASSIGN(latents, PartIdsFromWire(message.latent_part_ids(), "latent_part_ids"));
  command.stored_latents = std::move(latents);
  return command;
}

}  // namespace

absl::StatusOr<WorkerCommand> FromWire(const v1::WorkerCommand& message) {
  switch (message.command_case()) {
    case v1::WorkerCommand::kWelcome:
      return WelcomeCommand{message.welcome().worker(), message.welcome().heartbeat_ms()};
    case v1::WorkerCommand::kRunRange:
      return FromWire(message.run_range());
    case v1::WorkerCommand::kAbortAttempt:
      return AbortCommand{FromWire(message.abort_attempt().attempt())};
    case v1::WorkerCommand::kRunDecode:
      return FromWire(message.run_decode());
    case v1::WorkerCommand::kRunExport:
      return FromWire(message.run_export());
    case v1::WorkerCommand::kDrain:
      return DrainCommand{};
    case v1::WorkerCommand::COMMAND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("command: of a kind this worker does not know");
}

AttemptKey AttemptOf(const v1::WorkerCommand& message) {
  switch (message.command_case()) {
    case v1::WorkerCommand::kRunRange:
      return FromWire(message.run_range().attempt());
    case v1::WorkerCommand::kAbortAttempt:
      return FromWire(message.abort_attempt().attempt());
    case v1::WorkerCommand::kRunDecode:
      return FromWire(message.run_decode().attempt());
    case v1::WorkerCommand::kRunExport:
      return FromWire(message.run_export().attempt());
    default:
      return {};
  }
}

}  // namespace deltafill::worker
