#include "coordinator/front/checkpoint_request.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"

namespace deltafill::coordinator {
namespace {

absl::Status CheckPositions(std::span<const uint64_t> positions, uint64_t tokens) {
  if (positions.size() > kCheckpointsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint_at: ", positions.size(), " positions; at most ", kCheckpointsMax));
  }
  uint64_t previous = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] == 0 || positions[i] > tokens) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint_at[", i, "]: ", positions[i],
                                                     " is not in 1 to ", tokens,
                                                     ", the prompt's tokens"));
    }
    if (positions[i] <= previous) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint_at[", i, "]: ", positions[i],
                                                     " does not ascend from ", previous));
    }
    previous = positions[i];
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<RequestedBoundary>> MergeCheckpoints(
    std::span<const uint64_t> checkpoint_at, uint64_t every, uint64_t tokens) {
  if (absl::Status status = CheckPositions(checkpoint_at, tokens); !status.ok()) return status;
  if (every != 0 && every < kCheckpointEveryMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint_every: ", every, " is below ", kCheckpointEveryMin));
  }
  if (every != 0 && tokens / every > kCheckpointsMax) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint_every: ", every, " gives ",
                                                   tokens / every, " checkpoints of ", tokens,
                                                   " tokens; at most ", kCheckpointsMax));
  }
  std::map<uint64_t, uint64_t> merged;
  const auto add = [&merged](uint64_t position) {
    uint64_t& largest = merged[FloorToBlock(position)];
    largest = std::max(largest, position);
  };
  for (uint64_t position : checkpoint_at) add(position);
  for (uint64_t i = 1; every != 0 && i <= tokens / every; ++i) add(i * every);
  merged.erase(0);
  if (merged.size() > kCheckpointsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint_at and checkpoint_every: ", merged.size(),
                     " checkpoints together; at most ", kCheckpointsMax));
  }
  std::vector<RequestedBoundary> requested;
  requested.reserve(merged.size());
  for (const auto& [boundary, position] : merged) requested.push_back({boundary, position});
  return requested;
}

}  // namespace deltafill::coordinator
