// What a prefill run reports, as the API's messages.
#ifndef DELTAFILL_COORDINATOR_FRONT_PREFILL_MESSAGES_H_
#define DELTAFILL_COORDINATOR_FRONT_PREFILL_MESSAGES_H_

#include <cstdint>
#include <string>

#include "coordinator/front/prefill_run.h"

namespace deltafill::v1 {
class PrefillAccepted;
class PrefillProgress;
class Timings;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// tokens: of the whole prompt.
void FillAccepted(uint64_t tokens, uint64_t cached_tokens, const std::string& miss_reason,
                  const PlanSummary& plan, v1::PrefillAccepted* accepted);
void FillProgress(uint64_t tokens, const ProgressReport& report, uint32_t attempt,
                  v1::PrefillProgress* progress);

// total_s: seconds from the call's start.
void FillTimings(const PrefillOutcome& outcome, double total_s, v1::Timings* timings);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PREFILL_MESSAGES_H_
