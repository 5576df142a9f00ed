// Checks that every backend makes of its params. Each names the field it was given and the limit.
#ifndef DELTAFILL_KERNELS_PARAM_CHECKS_H_
#define DELTAFILL_KERNELS_PARAM_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/status.h"
#include "kernels/tensor.h"

namespace deltafill::kernels {

inline bool IsKnown(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

inline Status CheckRange(const std::string& field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(field + ": " + std::to_string(value) + " is not in [" +
                         std::to_string(low) + ", " + std::to_string(high) + "]");
}

inline Status CheckNotNull(const std::string& field, const void* pointer) {
  if (pointer != nullptr) return {};
  return InvalidArgument(field + ": is null");
}

// Token ids of an embedding.
inline Status CheckTokens(std::span<const uint32_t> tokens, int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < vocabulary) continue;
    return InvalidArgument("tokens[" + std::to_string(i) + "]: " + std::to_string(tokens[i]) +
                           " is not below the vocabulary's " + std::to_string(vocabulary));
  }
  return {};
}

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_PARAM_CHECKS_H_
