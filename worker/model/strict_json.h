// JSON as files from outside are read: no exceptions, no duplicate keys, a limit on nesting.
#ifndef DELTAFILL_WORKER_MODEL_STRICT_JSON_H_
#define DELTAFILL_WORKER_MODEL_STRICT_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace deltafill::worker {

inline constexpr int kJsonDepthMax = 32;

// INVALID_ARGUMENT if the text is not JSON in UTF-8, nests deeper than kJsonDepthMax, or an object
// has a key twice (named). The message does not name the file: callers do.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_STRICT_JSON_H_
