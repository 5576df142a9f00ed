#include "coordinator/workers/worker_messages.h"

#include <bit>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "coordinator/latent_parts.h"
#include "proto/worker.pb.h"

namespace deltafill::coordinator {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens travel as they lie in memory");

void WriteTokens(const uint32_t* tokens, size_t count, std::string* out) {
  out->assign(reinterpret_cast<const char*>(tokens), count * sizeof(uint32_t));
}

void WriteAttempt(const AttemptRef& attempt, v1::AttemptId* out) {
  out->set_prompt(attempt.prompt);
  out->set_attempt(attempt.attempt);
}

template <typename RepeatedBytes>
void WriteIds(const std::vector<PartId>& ids, RepeatedBytes* out) {
  for (const PartId& id : ids) *out->Add() = std::string(id.view());
}

void WriteStart(const StartState& start, v1::RangeSource* out) {
  if (start.boundary == 0) return out->set_zero(true);
  WriteIds(IdsWithoutLatents(start.parts), out->mutable_stored()->mutable_part_ids());
}

void WriteSource(const SourceOrder& source, v1::RangeSource* out) {
  switch (source.kind) {
    case SourceOrder::Kind::kZero:
      out->set_zero(true);
      break;
    case SourceOrder::Kind::kStored:
      WriteIds(source.part_ids, out->mutable_stored()->mutable_part_ids());
      break;
    case SourceOrder::Kind::kPeer:
      out->mutable_peer()->set_worker(source.peer);
      break;
  }
}

void Write(const RangeOrder& order, v1::WorkerCommand* command) {
  v1::RunRange* run = command->mutable_run_range();
  WriteAttempt(order.attempt, run->mutable_attempt());
  run->set_range(order.range);
  run->set_first_token(order.span.first_token);
  WriteTokens(order.tokens->data() + (order.span.first_token - order.tokens_begin),
              order.span.token_count, run->mutable_tokens());
  WriteSource(order.source, run->mutable_source());
  run->set_hand_on(order.hand_on);
  if (order.hand_on) {
    run->mutable_next()->set_worker(order.next);
    run->mutable_next()->set_exchange_address(order.next_address);
  }
  for (const BoundaryOrder& boundary : order.boundaries) {
    v1::BoundaryRequest* request = run->add_boundaries();
    request->set_boundary(boundary.boundary);
    request->set_recovery(boundary.recovery);
  }
  run->set_last_logits(order.last_logits);
  run->set_tenant(order.tenant);
  const LatentOrder& latents = order.latents;
  if (latents.attempt_end == 0) return;  // no attention layers
  run->mutable_latents()->set_attempt_start(latents.attempt_start);
  run->mutable_latents()->set_attempt_end(latents.attempt_end);
  WriteIds(latents.stored, run->mutable_latents()->mutable_stored_part_ids());
  run->mutable_latents()->set_next_holds(latents.next_holds);
  run->mutable_latents()->mutable_piece_ends()->Add(latents.piece_ends.begin(),
                                                    latents.piece_ends.end());
  run->mutable_latents()->set_keep(latents.keep);
}

void Write(const DecodeOrder& order, v1::WorkerCommand* command) {
  const DecodeWork& work = *order.work;
  v1::RunDecode* run = command->mutable_run_decode();
  WriteAttempt(order.attempt, run->mutable_attempt());
  run->set_first_token(work.start.boundary);
  WriteTokens(work.tokens.data(), work.tokens.size(), run->mutable_tokens());
  WriteStart(work.start, run->mutable_source());
  WriteIds(LatentIds(work.start.parts), run->mutable_latent_part_ids());
  run->set_max_tokens(work.max_tokens);
  run->set_temperature(work.temperature);
  run->set_top_p(work.top_p);
  run->set_seed(work.seed);
  for (uint32_t id : work.stop_ids) run->add_stop_ids(id);
  run->set_save_state(work.save_state);
  run->set_tenant(work.tenant);
}

void Write(const ExportOrder& order, v1::WorkerCommand* command) {
  const ExportWork& work = *order.work;
  v1::RunExport* run = command->mutable_run_export();
  WriteAttempt(order.attempt, run->mutable_attempt());
  run->set_first_token(work.start.boundary);
  WriteTokens(work.tokens.data(), work.tokens.size(), run->mutable_tokens());
  WriteStart(work.start, run->mutable_source());
  WriteIds(LatentIds(work.start.parts), run->mutable_latent_part_ids());
  run->set_tenant(work.tenant);
}

void Write(const AbortOrder& order, v1::WorkerCommand* command) {
  WriteAttempt(order.attempt, command->mutable_abort_attempt()->mutable_attempt());
}

void Write(const DrainOrder&, v1::WorkerCommand* command) { command->mutable_drain(); }

AttemptRef ReadAttempt(const v1::AttemptId& attempt) {
  return {attempt.prompt(), attempt.attempt()};
}

template <typename Parts>
absl::Status ReadParts(const Parts& parts, std::vector<PartReceipt>* out) {
  for (const v1::StoredPart& part : parts) {
    PartReceipt receipt;
    if (!PartId::FromBytes(part.id(), &receipt.id)) {
      return absl::InvalidArgumentError("parts.id: must have 32 bytes");
    }
    if (part.kind() < uint32_t{static_cast<uint8_t>(PartKind::kRecurrent)} ||
        part.kind() > uint32_t{static_cast<uint8_t>(PartKind::kLogits)}) {
      return absl::InvalidArgumentError(absl::StrCat("parts.kind: ", part.kind(), " is unknown"));
    }
    receipt.kind = static_cast<PartKind>(part.kind());
    receipt.bytes = part.bytes();
    receipt.lease_id = part.lease_id();
    out->push_back(receipt);
  }
  return absl::OkStatus();
}

absl::Status DeliverPiece(WorkerNumber worker, const v1::LatentPieceStored& message,
                          Scheduler& scheduler) {
  std::vector<PartReceipt> part;
  const std::span<const v1::StoredPart> one(&message.part(), 1);
  if (absl::Status status = ReadParts(one, &part); !status.ok()) return status;
  scheduler.OnLatentPieceStored(worker, ReadAttempt(message.attempt()), message.end(), part[0]);
  return absl::OkStatus();
}

AttemptFailure ReadFailure(const v1::AttemptFailed& failed) {
  AttemptFailure failure;
  const bool known = failed.code() >= 1 && failed.code() <= 16;
  failure.status = absl::Status(
      known ? static_cast<absl::StatusCode>(failed.code()) : absl::StatusCode::kInternal,
      failed.message());
  failure.stored_state_lost = failed.stored_state_lost();
  failure.peer_lost = failed.peer_lost();
  return failure;
}

absl::Status DeliverStored(WorkerNumber worker, const v1::BoundaryStored& message,
                           Scheduler& scheduler) {
  StoredBoundary stored;
  stored.boundary = message.boundary();
  if (absl::Status status = ReadParts(message.parts(), &stored.parts); !status.ok()) return status;
  scheduler.OnBoundaryStored(worker, ReadAttempt(message.attempt()), stored, message.skipped());
  return absl::OkStatus();
}

absl::Status DeliverDecodeFinished(WorkerNumber worker, const v1::DecodeFinished& message,
                                   Scheduler& scheduler) {
  StoredBoundary saved;
  saved.boundary = message.saved().boundary();
  if (absl::Status status = ReadParts(message.saved().parts(), &saved.parts); !status.ok()) {
    return status;
  }
  scheduler.OnDecodeFinished(worker, ReadAttempt(message.attempt()), message.finish_reason(),
                             saved);
  return absl::OkStatus();
}

absl::Status DeliverExportReady(WorkerNumber worker, const v1::ExportReady& message,
                                Scheduler& scheduler) {
  std::vector<PartReceipt> parts;
  if (absl::Status status = ReadParts(message.parts(), &parts); !status.ok()) return status;
  scheduler.OnExportReady(worker, ReadAttempt(message.attempt()), parts);
  return absl::OkStatus();
}

absl::Status ReadShapes(const v1::WorkerModel& model, std::vector<PartHeader>* out) {
  for (const v1::StatePartShape& shape : model.state_parts()) {
    PartHeader header;
    if (shape.kind() < 1 || shape.kind() > uint32_t{static_cast<uint8_t>(PartKind::kLogits)} ||
        shape.dtype() > uint32_t{static_cast<uint8_t>(PartDType::kF16)} ||
        shape.shape_size() != static_cast<int>(header.shape.size())) {
      return absl::InvalidArgumentError(
          "hello.model.state_parts: kind, dtype or number of dims is unknown");
    }
    header.kind = static_cast<PartKind>(shape.kind());
    header.dtype = static_cast<PartDType>(shape.dtype());
    header.layers.assign(shape.layers().begin(), shape.layers().end());
    std::copy(shape.shape().begin(), shape.shape().end(), header.shape.begin());
    out->push_back(std::move(header));
  }
  return absl::OkStatus();
}

AttentionCosts ReadAttentionCosts(const v1::CostConstants& costs) {
  const v1::AttentionCosts& attention = costs.attention();
  return {attention.fixed_s(),           attention.token_s(),        attention.pair_s(),
          attention.handover_fraction(), attention.row_exchange_s(), attention.key_s(),
          attention.exchange_s()};
}

absl::Status ReadLatents(const v1::WorkerModel& model, LatentShape* out) {
  if (!model.has_latents()) return absl::OkStatus();
  const v1::LatentShape& shape = model.latents();
  if (shape.layers().empty() || shape.width() == 0 ||
      shape.dtype() > uint32_t{static_cast<uint8_t>(PartDType::kF16)}) {
    return absl::InvalidArgumentError(
        "hello.model.latents: no layers, no width, or a dtype that is unknown");
  }
  out->layers.assign(shape.layers().begin(), shape.layers().end());
  out->width = shape.width();
  out->dtype = static_cast<PartDType>(shape.dtype());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerProfile> ProfileFromHello(const v1::WorkerHello& hello) {
  if (!hello.has_model()) return absl::InvalidArgumentError("hello.model: missing");
  const v1::WorkerModel& model = hello.model();
  WorkerProfile profile;
  profile.name = hello.name();
  profile.device = hello.device();
  profile.exchange_address = hello.exchange_address();
  profile.range_tokens_max = hello.range_tokens_max();
  if (hello.has_latent_tokens_max()) profile.latent_tokens_max = hello.latent_tokens_max();
  profile.decode_batch_max = hello.decode_batch_max();
  profile.costs = {hello.costs().layer_fixed_s(), hello.costs().layer_token_s(),
                   hello.costs().range_fixed_s(), hello.costs().handover_fraction(),
                   hello.costs().exchange_s(),    ReadAttentionCosts(hello.costs())};
  profile.model.name = model.name();
  if (!ModelFingerprint::FromBytes(model.fingerprint(), &profile.model.fingerprint)) {
    return absl::InvalidArgumentError("hello.model.fingerprint: must have 32 bytes");
  }
  profile.model.numerics = model.numerics();
  profile.model.vocabulary = model.vocabulary();
  profile.model.layers = model.layers();
  profile.model.state_bytes = model.state_bytes();
  profile.model.position_max = model.position_max();
  profile.model.eos_ids.assign(model.eos_ids().begin(), model.eos_ids().end());
  profile.model.tokenizer_kind = model.tokenizer_kind();
  profile.model.tokenizer_file = std::make_shared<const std::string>(model.tokenizer_file());
  absl::Status status = ReadShapes(model, &profile.model.state_parts);
  status.Update(ReadLatents(model, &profile.model.latents));
  if (!status.ok()) return status;
  return profile;
}

void WriteCommand(const WorkerOrder& order, v1::WorkerCommand* command) {
  std::visit([command](const auto& kind) { Write(kind, command); }, order);
}

absl::Status DeliverEvent(WorkerNumber worker, const v1::WorkerEvent& event, Scheduler& scheduler) {
  switch (event.event_case()) {
    case v1::WorkerEvent::kHeartbeat:
      scheduler.OnHeartbeat(worker, event.heartbeat().save_queue_bytes(),
                            event.heartbeat().stall_s());
      if (event.heartbeat().draining()) scheduler.DrainWorker(worker);
      return absl::OkStatus();
    case v1::WorkerEvent::kRangeProgress:
      scheduler.OnRangeProgress(worker, ReadAttempt(event.range_progress().attempt()),
                                event.range_progress().range(),
                                event.range_progress().layers_done());
      return absl::OkStatus();
    case v1::WorkerEvent::kRangeDone:
      scheduler.OnRangeDone(worker, ReadAttempt(event.range_done().attempt()),
                            event.range_done().range(), event.range_done().restore_s());
      return absl::OkStatus();
    case v1::WorkerEvent::kBoundaryStored:
      return DeliverStored(worker, event.boundary_stored(), scheduler);
    case v1::WorkerEvent::kLatentPieceStored:
      return DeliverPiece(worker, event.latent_piece_stored(), scheduler);
    case v1::WorkerEvent::kLastLogits:
      scheduler.OnLastLogits(worker, ReadAttempt(event.last_logits().attempt()),
                             event.last_logits().values());
      return absl::OkStatus();
    case v1::WorkerEvent::kAttemptFailed:
      scheduler.OnAttemptFailed(worker, ReadAttempt(event.attempt_failed().attempt()),
                                ReadFailure(event.attempt_failed()));
      return absl::OkStatus();
    case v1::WorkerEvent::kDecodeReady:
      scheduler.OnDecodeReady(worker, ReadAttempt(event.decode_ready().attempt()));
      return absl::OkStatus();
    case v1::WorkerEvent::kDecodeTokens:
      for (const v1::DecodeToken& token : event.decode_tokens().tokens()) {
        scheduler.OnDecodeToken(worker, ReadAttempt(token.attempt()), token.id());
      }
      return absl::OkStatus();
    case v1::WorkerEvent::kDecodeFinished:
      return DeliverDecodeFinished(worker, event.decode_finished(), scheduler);
    case v1::WorkerEvent::kExportReady:
      return DeliverExportReady(worker, event.export_ready(), scheduler);
    case v1::WorkerEvent::kDrained:
      scheduler.OnDrained(worker);
      return absl::OkStatus();
    case v1::WorkerEvent::kFailed:  // WorkerHub's
    case v1::WorkerEvent::kHello:
      return absl::InvalidArgumentError("event: is not one of an attached worker");
    case v1::WorkerEvent::EVENT_NOT_SET:
      return absl::InvalidArgumentError("event: empty");
  }
  return absl::InvalidArgumentError("event: unknown");
}

}  // namespace deltafill::coordinator
