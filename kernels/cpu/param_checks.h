// The single checks that the validation of params is made of, beside those of all backends. Each
// names the field it was given.
#ifndef DELTAFILL_KERNELS_CPU_PARAM_CHECKS_H_
#define DELTAFILL_KERNELS_CPU_PARAM_CHECKS_H_

#include <cstdint>
#include <string>

#include "kernels/cpu/weight.h"
#include "kernels/param_checks.h"
#include "kernels/status.h"
#include "kernels/tensor.h"

namespace deltafill::kernels::cpu {

// Runs `check`, a Status, and returns it from the enclosing function unless OK.
#define DELTAFILL_CHECK(check)                                \
  do {                                                        \
    if (Status status = (check); !status.ok()) return status; \
  } while (false)

// fp32 memory: not null and aligned.
Status CheckFloats(const std::string& field, const void* pointer);

// Rows that an operator reads or writes. No rows: nothing but the dtype is looked at.
Status CheckRows(const char* field, const ConstRows& rows, int64_t count, int64_t width);

// `out` is set if the weight is this backend's.
Status CheckWeight(const std::string& field, const Weight* weight, const CpuWeight** out);

Status CheckOffsets(SequenceOffsets offsets);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_PARAM_CHECKS_H_
