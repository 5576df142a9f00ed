#include "coordinator/front/log.h"

#include <spdlog/spdlog.h>

namespace deltafill::coordinator {

// "{}": a message is never taken for a format.
void LogNotice(std::string_view message) { spdlog::info("{}", message); }
void LogWarning(std::string_view message) { spdlog::warn("{}", message); }
void LogError(std::string_view message) { spdlog::error("{}", message); }

}  // namespace deltafill::coordinator
