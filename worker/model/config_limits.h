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
inline constexpr int64_t kExpertsMax = int64_t{1} << 16;
inline constexpr size_t kEosIdsMax = 64;

static_assert(kVocabularyMax * kHiddenMax <= int64_t{1} << 41);
static_assert(kHeadsMax * 128 * kHiddenMax <= int64_t{1} << 40);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CONFIG_LIMITS_H_
