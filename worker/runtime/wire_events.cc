#include <string>
#include <variant>

#include "proto/worker.pb.h"
#include "worker/runtime/wire.h"

namespace deltafill::worker {
namespace {

constexpr uint32_t kProtocol = 2;

void Fill(const AttemptKey& attempt, v1::AttemptId* message) {
  message->set_prompt(attempt.prompt);
  message->set_attempt(attempt.attempt);
}

void Fill(const PartReceipt& receipt, v1::StoredPart* message) {
  message->set_id(std::string(receipt.id.view()));
  message->set_kind(static_cast<uint32_t>(receipt.kind));
  message->set_bytes(receipt.bytes);
  message->set_lease_id(receipt.lease_id);
}

void Fill(const BoundaryStored& stored, v1::BoundaryStored* message) {
  Fill(stored.attempt, message->mutable_attempt());
  message->set_boundary(stored.boundary);
  for (const PartReceipt& receipt : stored.parts) Fill(receipt, message->add_parts());
  message->set_skipped(stored.skipped);
}

void Fill(const CostConstants& costs, v1::CostConstants* message) {
  message->set_layer_fixed_s(costs.layer_fixed_s);
  message->set_layer_token_s(costs.layer_token_s);
  message->set_range_fixed_s(costs.range_fixed_s);
  message->set_handover_fraction(costs.handover_fraction);
  message->set_exchange_s(costs.exchange_s);
  v1::AttentionCosts* attention = message->mutable_attention();
  attention->set_fixed_s(costs.attention.fixed_s);
  attention->set_token_s(costs.attention.token_s);
  attention->set_pair_s(costs.attention.pair_s);
  attention->set_handover_fraction(costs.attention.handover_fraction);
  attention->set_row_exchange_s(costs.attention.row_exchange_s);
  attention->set_key_s(costs.attention.key_s);
  attention->set_exchange_s(costs.attention.exchange_s);
}

void Fill(const WorkerProfile& profile, v1::WorkerModel* message) {
  message->set_name(profile.model_name);
  message->set_fingerprint(std::string(profile.fingerprint.view()));
  message->set_numerics(profile.numerics);
  message->set_vocabulary(profile.vocabulary);
  message->set_layers(profile.layers);
  message->set_state_bytes(profile.state_bytes);
  message->set_position_max(profile.position_max);
  message->mutable_eos_ids()->Add(profile.eos_ids.begin(), profile.eos_ids.end());
  message->set_tokenizer_kind(profile.tokenizer_kind);
  message->set_tokenizer_file(profile.tokenizer_file);
  for (const PartHeader& header : profile.state_parts) {
    v1::StatePartShape* shape = message->add_state_parts();
    shape->set_kind(static_cast<uint32_t>(header.kind));
    shape->set_dtype(static_cast<uint32_t>(header.dtype));
    shape->mutable_layers()->Add(header.layers.begin(), header.layers.end());
    shape->mutable_shape()->Add(header.shape.begin(), header.shape.end());
  }
  const LatentLayout& latents = profile.latents;
  if (latents.layers.empty()) return;
  message->mutable_latents()->mutable_layers()->Add(latents.layers.begin(), latents.layers.end());
  message->mutable_latents()->set_width(latents.width);
  message->mutable_latents()->set_dtype(static_cast<uint32_t>(latents.dtype));
}

// One operator() an event.
struct EventFiller {
  v1::WorkerEvent* message;

  void operator()(const WorkerHeartbeat& event) const {
    message->mutable_heartbeat()->set_save_queue_bytes(event.save_queue_bytes);
    message->mutable_heartbeat()->set_stall_s(event.stall_s);
    message->mutable_heartbeat()->set_draining(event.draining);
  }
  void operator()(const RangeProgress& event) const {
    Fill(event.attempt, message->mutable_range_progress()->mutable_attempt());
    message->mutable_range_progress()->set_range(event.range);
    message->mutable_range_progress()->set_layers_done(event.layers_done);
  }
  void operator()(const RangeDone& event) const {
    Fill(event.attempt, message->mutable_range_done()->mutable_attempt());
    message->mutable_range_done()->set_range(event.range);
    message->mutable_range_done()->set_compute_s(event.compute_s);
    message->mutable_range_done()->set_wait_s(event.wait_s);
    message->mutable_range_done()->set_restore_s(event.restore_s);
  }
  void operator()(const BoundaryStored& event) const {
    Fill(event, message->mutable_boundary_stored());
  }
  void operator()(const LatentPieceStored& event) const {
    Fill(event.attempt, message->mutable_latent_piece_stored()->mutable_attempt());
    message->mutable_latent_piece_stored()->set_end(event.end);
    Fill(event.part, message->mutable_latent_piece_stored()->mutable_part());
  }
  void operator()(const LastLogits& event) const {
    Fill(event.attempt, message->mutable_last_logits()->mutable_attempt());
    message->mutable_last_logits()->set_values(event.values.data(),
                                               event.values.size() * sizeof(float));
  }
  void operator()(const AttemptFailed& event) const {
    v1::AttemptFailed* failed = message->mutable_attempt_failed();
    Fill(event.attempt, failed->mutable_attempt());
    failed->set_code(static_cast<uint32_t>(event.status.code()));
    failed->set_message(std::string(event.status.message()));
    failed->set_stored_state_lost(event.stored_state_lost);
    failed->set_peer_lost(event.peer_lost);
  }
  void operator()(const DecodeReady& event) const {
    Fill(event.attempt, message->mutable_decode_ready()->mutable_attempt());
  }
  void operator()(const DecodeToken& event) const {
    v1::DecodeToken* token = message->mutable_decode_tokens()->add_tokens();
    Fill(event.attempt, token->mutable_attempt());
    token->set_id(event.id);
  }
  void operator()(const DecodeFinished& event) const {
    v1::DecodeFinished* finished = message->mutable_decode_finished();
    Fill(event.attempt, finished->mutable_attempt());
    finished->set_finish_reason(event.finish_reason);
    if (event.has_saved) Fill(event.saved, finished->mutable_saved());
  }
  void operator()(const ExportReady& event) const {
    Fill(event.attempt, message->mutable_export_ready()->mutable_attempt());
    for (const PartReceipt& receipt : event.parts) {
      Fill(receipt, message->mutable_export_ready()->add_parts());
    }
  }
  void operator()(const WorkerDrained&) const { message->mutable_drained(); }
  void operator()(const WorkerFailed& event) const {
    message->mutable_failed()->set_message(std::string(event.status.message()));
  }
};

}  // namespace

void ToWire(const WorkerProfile& profile, v1::WorkerEvent* message) {
  v1::WorkerHello* hello = message->mutable_hello();
  hello->set_protocol(kProtocol);
  hello->set_name(profile.name);
  hello->set_exchange_address(profile.exchange_address);
  hello->set_device(profile.device);
  hello->set_range_tokens_max(profile.range_tokens_max);
  if (!profile.latents.layers.empty()) hello->set_latent_tokens_max(profile.latent_tokens_max);
  hello->set_decode_batch_max(profile.decode_batch_max);
  Fill(profile.costs, hello->mutable_costs());
  Fill(profile, hello->mutable_model());
}

void ToWire(const WorkerEvent& event, v1::WorkerEvent* message) {
  std::visit(EventFiller{message}, event);
}

}  // namespace deltafill::worker
