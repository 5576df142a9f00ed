// GetServerInfo: what is served, by whom, and how full it is.
#include "coordinator/front/operations.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

void Describe(const ServedModel& model, v1::ModelDescription* description) {
  description->set_name(model.name);
  description->set_fingerprint(model.fingerprint.ToHex());
  description->set_numerics(model.numerics);
  description->set_vocabulary(model.vocabulary);
  description->set_layers(model.layers);
  description->set_tokenizer(model.tokenizer_kind);
  description->set_state_bytes(model.state_bytes);
}

void Describe(const AttachedWorker& worker, v1::WorkerDescription* description) {
  description->set_name(worker.name);
  description->set_device(worker.device);
  description->set_status(worker.draining ? "draining" : "ready");
  description->set_ranges_queued(worker.ranges_queued);
  description->set_decodes_running(worker.decodes_running);
}

void Describe(const StoreStats& stats, v1::StoreDescription* description) {
  description->set_states(stats.states);
  description->set_bytes(stats.bytes);
  description->set_budget_bytes(stats.budget_bytes);
  description->set_evicted_states(stats.evicted_states);
  description->set_quarantined_parts(stats.quarantined_parts);
  description->set_determinism_mismatches(stats.determinism_mismatches);
}

}  // namespace

absl::Status GetServerInfo(FrontContext& context, v1::ServerInfo* response) {
  absl::StatusOr<StoreStats> stats = context.store.GetStats();
  if (!stats.ok()) return stats.status();
  response->set_version(DELTAFILL_VERSION);
  for (const ServedModel& model : context.engine.Models()) Describe(model, response->add_models());
  for (const AttachedWorker& worker : context.engine.Workers()) {
    Describe(worker, response->add_workers());
  }
  Describe(*stats, response->mutable_store());
  response->set_prompts_running(context.engine.PromptsRunning());
  response->set_prompts_queued(context.engine.PromptsQueued());
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
