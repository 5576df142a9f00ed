#include "worker/exchange/link_traffic.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace deltafill::worker {
void LinkTraffic::Add(bool by_device_link, PartKind kind, size_t bytes, Clock::time_point start) {
  std::lock_guard lock(mutex_);
  Sum& sum = sums_[{by_device_link, kind}];
  ++sum.messages;
  sum.bytes += bytes;
  sum.seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

std::string LinkTraffic::Take() {
  std::lock_guard lock(mutex_);
  std::string summary;
  for (const auto& [what, sum] : sums_) {
    absl::StrAppend(&summary, summary.empty() ? "" : "; ",
                    what.first ? "by device link: " : "in the stream: ", PartKindName(what.second),
                    " ", sum.messages, " messages, ", sum.bytes, " bytes, ",
                    absl::StrFormat("%.6f", sum.seconds), " s");
  }
  sums_.clear();
  return summary;
}

}  // namespace deltafill::worker
