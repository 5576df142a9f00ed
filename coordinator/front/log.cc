#include "coordinator/front/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace deltafill::coordinator {
namespace {

// Standard output is for results.
spdlog::logger& Log() {
  static const std::shared_ptr<spdlog::logger> log = [] {
    auto made = spdlog::stderr_color_mt("deltafill");
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *log;
}

}  // namespace

// "{}": a message is never taken for a format.
void LogNotice(std::string_view message) { Log().info("{}", message); }
void LogWarning(std::string_view message) { Log().warn("{}", message); }
void LogError(std::string_view message) { Log().error("{}", message); }

}  // namespace deltafill::coordinator
