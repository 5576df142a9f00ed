// Every limit of the public API. proto/prefill.proto states the same numbers to callers.
#ifndef DELTAFILL_COORDINATOR_FRONT_LIMITS_H_
#define DELTAFILL_COORDINATOR_FRONT_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "statestore/identity.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

// Requests.
inline constexpr uint64_t kPromptTokensMax = uint64_t{4} << 20;
inline constexpr uint64_t kPromptTextBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kCheckpointsMax = 4096;  // positions given, and boundaries after merging
inline constexpr uint64_t kCheckpointEveryMin = kBlockTokenCount;
inline constexpr uint32_t kDecodeTokensMax = 65536;
inline constexpr double kTemperatureMax = 100.0;
inline constexpr int kStopIdsMax = 64;
inline constexpr uint32_t kListLimitDefault = 100;
inline constexpr uint32_t kListLimitMax = 1000;
inline constexpr int kFetchLayersMax = 4096;
inline constexpr size_t kModelNameBytesMax = 256;
inline constexpr size_t kLayoutNameBytesMax = 64;
inline constexpr size_t kPageBytesMax = 256;
inline constexpr size_t kTenantNameBytesMax = 64;
inline constexpr size_t kBearerTokenBytesMax = 4096;

// Handles: "df1." and base64url of flags, state id, tail tokens as varints, checksum.
inline constexpr size_t kTailTokensMax = kBlockTokenCount;
inline constexpr size_t kVarintBytesMax = 5;
inline constexpr size_t kHandleChecksumBytes = 4;
inline constexpr size_t kHandleRawBytesMin = 1 + 32 + kHandleChecksumBytes;
inline constexpr size_t kHandleRawBytesMax = kHandleRawBytesMin + kTailTokensMax * kVarintBytesMax;
inline constexpr size_t kHandleCharsMax = 4 + (kHandleRawBytesMax * 4 + 2) / 3;

// Messages.
inline constexpr size_t kRequestBytesMax = size_t{64} << 20;
inline constexpr size_t kResponseBytesMax = size_t{64} << 20;
inline constexpr size_t kChunkBytesMax = size_t{1} << 20;

// Work.
inline constexpr int kSubmissionsMax = 3;  // of one prompt whose start state turned out damaged
// A prompt with more tokens to compute than this is prefilled by the wavefront before it is decoded
// from; below, the decoding worker prefills it itself.
inline constexpr uint64_t kDecodeDirectTokensMax = 4096;
inline constexpr int kConcurrentCallsMax = 512;
inline constexpr size_t kSaltsCachedMax = 4096;
inline constexpr size_t kTokenizersCachedMax = 16;

// Time.
inline constexpr std::chrono::milliseconds kCancelPoll{50};
inline constexpr std::chrono::milliseconds kProgressInterval{200};
inline constexpr std::chrono::seconds kCancelWaitMax{30};  // for the engine to let go of a prompt
inline constexpr int64_t kRetryDelayMsMin = 250;
inline constexpr int64_t kRetryDelayMsMax = 30000;

static_assert(kPromptTokensMax * sizeof(uint32_t) < kRequestBytesMax,
              "a full prompt fits a message");
static_assert(kPromptTextBytesMax < kRequestBytesMax);
static_assert(kCheckpointsMax * 10 + kPromptTokensMax * sizeof(uint32_t) < kRequestBytesMax);
static_assert(kPromptTokensMax % kBlockTokenCount == 0);
static_assert(kTailTokensMax == kBlockTokenCount, "a prompt's handle has 1 to 64 tail tokens");
static_assert(kChunkBytesMax % sizeof(float) == 0);
static_assert(kListLimitDefault <= kListLimitMax);
static_assert(kCancelPoll < std::chrono::milliseconds(100), "cancel is noticed within 100 ms");
static_assert(kDecodeDirectTokensMax % kBlockTokenCount == 0);
static_assert(kPromptTokensMax / kBlockTokenCount <= kChainLengthMax, "one look-up a prompt");
static_assert(kListLimitMax <= kListPageMax);
static_assert(kTenantNameBytesMax <= kTenantBytesMax);

// The end of the last whole block at or before a position.
constexpr uint64_t FloorToBlock(uint64_t position) {
  return position - position % kBlockTokenCount;
}

// Where a prompt of that many tokens (at least 1) is kept: a resume always has a token to compute.
constexpr uint64_t FinalBoundary(uint64_t tokens) { return FloorToBlock(tokens - 1); }

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_LIMITS_H_
