#include "coordinator/front/progress_rate.h"

#include <cmath>

#include "coordinator/front/limits.h"

namespace deltafill::coordinator {
namespace {

constexpr double kSmoothingSeconds = 5.0;
constexpr double kSampleSecondsMin = 0.05;  // shorter samples are joined: their rates are noise

}  // namespace

ProgressRate::ProgressRate(uint64_t tokens_start, uint64_t tokens, Clock::time_point now)
    : tokens_(tokens), last_done_(tokens_start), last_time_(now), last_report_(now) {}

std::optional<ProgressReport> ProgressRate::Update(uint64_t tokens_done, Clock::time_point now) {
  const double elapsed = std::chrono::duration<double>(now - last_time_).count();
  if (tokens_done < last_done_) {
    last_done_ = tokens_done;
    last_time_ = now;
    rate_ = 0.0;
  } else if (elapsed >= kSampleSecondsMin) {
    const double sample = static_cast<double>(tokens_done - last_done_) / elapsed;
    const double weight = rate_ > 0.0 ? 1.0 - std::exp(-elapsed / kSmoothingSeconds) : 1.0;
    rate_ += weight * (sample - rate_);
    last_done_ = tokens_done;
    last_time_ = now;
  }
  const bool end = tokens_done >= tokens_ && !reported_end_;
  if (!end && now - last_report_ < kProgressInterval) return std::nullopt;
  last_report_ = now;
  reported_end_ = tokens_done >= tokens_;
  ProgressReport report;
  report.tokens_done = tokens_done;
  report.tokens_per_second = rate_;
  if (rate_ > 0.0 && tokens_done < tokens_) {
    report.eta_seconds = static_cast<double>(tokens_ - tokens_done) / rate_;
  }
  return report;
}

}  // namespace deltafill::coordinator
