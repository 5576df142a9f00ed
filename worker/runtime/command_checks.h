// Checks of options, and of commands against the model that is to run them.
#ifndef DELTAFILL_WORKER_RUNTIME_COMMAND_CHECKS_H_
#define DELTAFILL_WORKER_RUNTIME_COMMAND_CHECKS_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace deltafill::worker {

// INVALID_ARGUMENT naming the field, unless it is a positive multiple of 64.
absl::Status CheckWholeBlocks(absl::string_view field, int64_t tokens);

// INVALID_ARGUMENT naming the field: first_token must be a multiple of 64, there must be at least
// one token, and ids must be below the vocabulary's size.
absl::Status CheckTokens(uint64_t first_token, std::span<const uint32_t> tokens,
                         int64_t vocabulary);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_COMMAND_CHECKS_H_
