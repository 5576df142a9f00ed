// Limits that client and service of the store share.
#ifndef DELTAFILL_STATESTORE_WIRE_LIMITS_H_
#define DELTAFILL_STATESTORE_WIRE_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "statestore/store.h"

namespace deltafill {

inline constexpr size_t kWireChunkBytesMax = size_t{1} << 20;
inline constexpr size_t kWireListBytesMax = size_t{8} << 20;
inline constexpr int kWireReceiveBytesMax = 16 << 20;

// gRPC's default limit of 4 MiB suffices on the service's side.
static_assert(kChainLengthMax * sizeof(StateId) < size_t{4} << 20);
static_assert(kPartHeaderBytesMax < size_t{4} << 20);
static_assert(kManifestPartsMax * 64 + kLeasesPerCallMax * sizeof(uint64_t) < size_t{4} << 20);
static_assert(kSnapshotContentsBytesMax + kSnapshotHoldsMax * 32 + kSnapshotSummaryBytesMax + 4096 <
              size_t{4} << 20);
static_assert(kListPageMax * (kSnapshotSummaryBytesMax + 1024) < size_t{kWireReceiveBytesMax});

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_WIRE_LIMITS_H_
