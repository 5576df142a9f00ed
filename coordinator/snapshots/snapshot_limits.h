// Limits of snapshots. proto/snapshot.proto states the same numbers to callers.
#ifndef DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_LIMITS_H_
#define DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "coordinator/front/limits.h"
#include "statestore/snapshot_records.h"

namespace deltafill::coordinator {

inline constexpr size_t kSnapshotBaseNameBytesMax = 64;
inline constexpr size_t kCommitDigitsMin = 7;  // of a shortened commit
inline constexpr size_t kSnapshotFilesMax = 20'000;
inline constexpr size_t kSnapshotPathBytesMax = 4096;
inline constexpr size_t kContentHashBytesMax = 32;
inline constexpr uint32_t kVersionsMax = 256;
inline constexpr size_t kSnapshotCheckpointsMax = 1024;  // besides the snapshot's end
inline constexpr uint64_t kCheckpointBytesDefault = uint64_t{1} << 30;

// A checkpoint is kept if it is expected to save so many seconds an update for each byte it takes:
// one second a GiB, about what writing the byte costs.
inline constexpr double kWorthSecondsPerByte = 1.0 / (uint64_t{1} << 30);
// Until a prefill was measured.
inline constexpr double kSecondsPerTokenDefault = 1e-5;
inline constexpr uint64_t kMeasuredTokensMin = 4096;  // less says little of the speed
// A file longer than this may have checkpoints inside.
inline constexpr uint64_t kCheckpointSpacing = 8192;

static_assert(kSnapshotCheckpointsMax + 1 <= kSnapshotHoldsMax);
static_assert(kSnapshotCheckpointsMax <= kCheckpointsMax);
static_assert(kSnapshotBaseNameBytesMax + 1 + 64 <= kSnapshotNameBytesMax);
static_assert(kCheckpointSpacing % kBlockTokenCount == 0);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_SNAPSHOTS_SNAPSHOT_LIMITS_H_
