// Limits on what config.json may ask for. They keep products of sizes far from overflow.
#ifndef DELTAFILL_WORKER_MODEL_CONFIG_LIMITS_H_
#define DELTAFILL_WORKER_MODEL_CONFIG_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace deltafill::worker {

inline constexpr size_t kConfigBytesMax = size_t{4} << 20;
inline constexpr int64_t kVocabularyMax = int64_t{1} << 24;
inline constexpr int64_t kHiddenMax = int64_t{1} << 17;
inline constexpr int64_t kIntermediateMax = int64_t{1} << 20;
inline constexpr int64_t kLayersMax = 1024;
inline constexpr int64_t kHeadsMax = 1024;
inline constexpr int64_t kExpertsMax = 1024;
inline constexpr int64_t kSharedExpertsMax = 64;
inline constexpr int64_t kLatentHeadDimMax = 1024;  // each of q's and k's two parts, and v
inline constexpr int64_t kLatentRankMax = 8192;
inline constexpr size_t kEosIdsMax = 64;

static_assert(kVocabularyMax * kHiddenMax <= int64_t{1} << 41);
static_assert(kHeadsMax * 128 * kHiddenMax <= int64_t{1} << 40);
static_assert(kHeadsMax * 2 * kLatentHeadDimMax * kHiddenMax <= int64_t{1} << 40);
static_assert(kSharedExpertsMax * kIntermediateMax * kHiddenMax <= int64_t{1} << 43);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CONFIG_LIMITS_H_
