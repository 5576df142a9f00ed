// The CPU delta-rule operators (DESIGN section 3): chunkwise forward, segment summary and the
// one-token step. Vectorised for AVX2 and AVX-512 by run-time dispatch.
//
// All rows are fp32 (other types: kUnsupported) and every buffer is host memory. The params are
// checked first: a broken limit gives kInvalidArgument naming the field and the limit, and no
// output is touched. Values are not checked: a NaN or infinity makes the outputs of its own
// sequence and value head non-finite from its row on, and nothing else.
//
// Bits of a row depend on its own row, the rows before it in its block and the state before its
// block: not on later rows, other sequences, the number of threads or the address. They do depend
// on the instruction set. Denormal inputs and results count as 0.
//
// A log decay is clamped to [-128, 0]: below -128 its exponential is 0 in fp32 with all that
// follow.
#ifndef DELTAFILL_KERNELS_CPU_DELTA_RULE_H_
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_H_

#include "kernels/cpu/thread_team.h"
#include "kernels/delta_rule.h"
#include "kernels/status.h"

namespace deltafill::kernels::cpu {

// Thread safety of all three: reentrant; a team serves one call at a time. Scratch (under 1 MiB a
// thread) is kept by each thread and reused; kResourceExhausted if it cannot be had, with outputs
// unspecified. Work is split over (sequence, value head), and over value channels when there are
// fewer of those than threads.

// Outputs must not overlap inputs, except that a sequence's final state may be its initial state.
Status DeltaRuleForward(const DeltaRuleForwardParams& params, ThreadTeam& team);

// m and b are overwritten; the chain of block maps is fp32.
Status DeltaRuleSummary(const DeltaRuleSummaryParams& params, ThreadTeam& team);

// Has its own bits, which do not depend on the batch.
Status DeltaRuleStep(const DeltaRuleStepParams& params, ThreadTeam& team);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_H_
