#include "worker/model/load_progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace deltafill::worker {
namespace {

constexpr std::chrono::seconds kPause{2};

double Gigabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

}  // namespace

LoadProgress::LoadProgress(std::string what, uint64_t bytes_total, LogLine log)
    : what_(std::move(what)), bytes_total_(bytes_total), log_(std::move(log)) {}

void LoadProgress::Add(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ += bytes;
  const auto now = Clock::now();
  if (!log_ || now - written_ < kPause) return;
  written_ = now;
  log_(absl::StrFormat("%s: %.1f of %.1f GB, %.0f s", what_, Gigabytes(bytes_),
                       Gigabytes(bytes_total_),
                       std::chrono::duration<double>(now - start_).count()));
}

void LoadProgress::Finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!log_) return;
  const double seconds =
      std::max(1e-3, std::chrono::duration<double>(Clock::now() - start_).count());
  log_(absl::StrFormat("%s: %.3f GB in %.2f s, %.2f GB/s", what_, Gigabytes(bytes_), seconds,
                       Gigabytes(bytes_) / seconds));
}

}  // namespace deltafill::worker
