#include "coordinator/front/prefill_messages.h"

#include "proto/prefill.pb.h"

namespace deltafill::coordinator {

void FillAccepted(uint64_t tokens, uint64_t cached_tokens, const std::string& miss_reason,
                  const PlanSummary& plan, v1::PrefillAccepted* accepted) {
  accepted->set_tokens(tokens);
  accepted->set_cached_tokens(cached_tokens);
  accepted->set_miss_reason(miss_reason);
  v1::PlanDescription* description = accepted->mutable_plan();
  description->set_schedule(plan.schedule);
  description->set_why(plan.why);
  description->set_workers(plan.workers);
  description->set_ranges(plan.ranges);
  description->set_range_tokens(plan.range_tokens);
  description->set_predicted_seconds(plan.predicted_s);
}

void FillProgress(uint64_t tokens, const ProgressReport& report, uint32_t attempt,
                  v1::PrefillProgress* progress) {
  progress->set_tokens_done(report.tokens_done);
  progress->set_tokens(tokens);
  progress->set_tokens_per_second(report.tokens_per_second);
  progress->set_eta_seconds(report.eta_seconds);
  progress->set_attempt(attempt);
}

void FillTimings(const PrefillOutcome& outcome, double total_s, v1::Timings* timings) {
  timings->set_lookup_s(outcome.lookup_s);
  timings->set_queue_s(outcome.work.queue_s);
  timings->set_prefill_s(outcome.work.compute_s);
  timings->set_save_s(outcome.save_s);
  timings->set_stall_s(outcome.work.stall_s);
  timings->set_restore_s(outcome.work.restore_s);
  timings->set_total_s(total_s);
}

}  // namespace deltafill::coordinator
