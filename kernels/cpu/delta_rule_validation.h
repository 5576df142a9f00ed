// Checks of the delta-rule params structs: the first broken limit as a Status naming it.
#ifndef DELTAFILL_KERNELS_CPU_DELTA_RULE_VALIDATION_H_
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_VALIDATION_H_

#include "kernels/delta_rule.h"
#include "kernels/status.h"

namespace deltafill::kernels::cpu {

Status ValidateForward(const DeltaRuleForwardParams& params);
Status ValidateSummary(const DeltaRuleSummaryParams& params);
Status ValidateStep(const DeltaRuleStepParams& params);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_VALIDATION_H_
