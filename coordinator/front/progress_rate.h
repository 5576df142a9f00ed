// Turns counts of finished tokens into a smoothed rate and a remaining time, seldom enough to send.
#ifndef DELTAFILL_COORDINATOR_FRONT_PROGRESS_RATE_H_
#define DELTAFILL_COORDINATOR_FRONT_PROGRESS_RATE_H_

#include <chrono>
#include <cstdint>
#include <optional>

namespace deltafill::coordinator {

struct ProgressReport {
  uint64_t tokens_done = 0;
  double tokens_per_second = 0.0;  // exponentially smoothed over about 5 s
  double eta_seconds = 0.0;        // 0 when nothing is known yet
};

class ProgressRate {
 public:
  using Clock = std::chrono::steady_clock;

  // tokens_start are there already (cached); tokens are all of them.
  ProgressRate(uint64_t tokens_start, uint64_t tokens, Clock::time_point now);

  // A report, if kProgressInterval has passed since the last one or everything is done. A count
  // that went back (a worker was lost) restarts the rate.
  std::optional<ProgressReport> Update(uint64_t tokens_done, Clock::time_point now);

 private:
  uint64_t tokens_;
  uint64_t last_done_;
  Clock::time_point last_time_;
  Clock::time_point last_report_;
  double rate_ = 0.0;
  bool reported_end_ = false;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_PROGRESS_RATE_H_
