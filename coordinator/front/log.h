// The coordinator's log lines. Prompt tokens, texts and handles never go here.
#ifndef DELTAFILL_COORDINATOR_FRONT_LOG_H_
#define DELTAFILL_COORDINATOR_FRONT_LOG_H_

#include <string_view>

namespace deltafill::coordinator {

// Thread-safe; to standard error.
void LogNotice(std::string_view message);
void LogWarning(std::string_view message);
void LogError(std::string_view message);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_LOG_H_
