// Checks of every params struct but the delta rule's. kInvalidArgument names the field, what it was
// and the limit; kUnsupported names a legal dtype the CPU backend does not compute with. Nothing is
// dereferenced but host spans.
#ifndef DELTAFILL_KERNELS_CPU_VALIDATE_H_
#define DELTAFILL_KERNELS_CPU_VALIDATE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/operators.h"

namespace deltafill::kernels::cpu {

class CpuWeight;

// Limits that keep every index computation inside 64 bits.
inline constexpr int64_t kFeaturesMax = int64_t{1} << 24;
inline constexpr int64_t kRowsMax = int64_t{1} << 32;
inline constexpr int kThreadsMax = 1024;

Status ValidateThreads(int threads);
Status ValidateOptions(const BackendOptions& options);
Status ValidateWeight(const void* host_data, DType dtype, int64_t out_features,
                      int64_t in_features);

// `weight` is set to params' weight as this backend's type. Both outputs only when OK.
Status Validate(const MatMulParams& params, const CpuWeight** weight);
Status Validate(const EmbeddingParams& params, const CpuWeight** table);
Status Validate(const RmsNormParams& params);
Status Validate(const ShortConvParams& params);
Status Validate(const ConvTailParams& params);
Status Validate(const SwiGluParams& params);

// A copy or fill of `bytes`: pointers may be null only for zero bytes.
Status ValidateCopy(const void* to, const void* from, size_t bytes);

// kResourceExhausted naming what was wanted and how much.
Status OutOfMemory(const std::string& what, size_t bytes);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_VALIDATE_H_
