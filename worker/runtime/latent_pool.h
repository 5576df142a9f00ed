// Room for the latents of a worker's sequences: bounded, claimed before it is used.
#ifndef DELTAFILL_WORKER_RUNTIME_LATENT_POOL_H_
#define DELTAFILL_WORKER_RUNTIME_LATENT_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "statestore/part.h"
#include "worker/model/latent_cache.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// How long a prompt waits at a worker for room that the coordinator counts as free: latents that
// are still being saved, or whose prompt has just been given up.
inline constexpr std::chrono::milliseconds kLatentRoomWait{60'000};

static_assert(kernels::kLatentPageTokens == static_cast<int64_t>(kLatentPieceTokens),
              "a page is also the piece that is stored");

// Bytes of a pool, given back with the last reference. One thread may extend it at a time.
class LatentClaim;
using LatentClaimRef = std::shared_ptr<const LatentClaim>;

// The latents of one sequence at one worker. One thread at a time.
class SequenceLatents {
 public:
  // Claims room for tokens [0, tokens). RESOURCE_EXHAUSTED with the bytes and the limit if that is
  // more than is left.
  absl::Status Claim(uint64_t tokens);
  // As Claim, but waits up to `wait` for others to give room back, if it could ever suffice.
  // CANCELLED once `given_up` says so.
  absl::Status ClaimWhenFree(uint64_t tokens, std::chrono::milliseconds wait,
                             const std::function<bool()>& given_up);
  // Claims it and has the cache allocate it.
  absl::Status Reserve(uint64_t tokens);

  LatentCache& cache() { return cache_; }
  const LatentCache& cache() const { return cache_; }
  // For whoever holds pages longer than this object lives.
  LatentClaimRef claim() const;

  // Rows [0, held_tokens) of every layer are there.
  uint64_t held_tokens = 0;

 private:
  friend class LatentPool;
  SequenceLatents(kernels::Backend* backend, const LatentLayout* layout,
                  std::shared_ptr<LatentClaim> claim)
      : claim_(std::move(claim)), cache_(backend, layout) {}

  const std::shared_ptr<LatentClaim> claim_;
  LatentCache cache_;
};

// Thread-safe.
class LatentPool {
 public:
  // Backend and layout outlive pool, sequences and pages.
  LatentPool(kernels::Backend* backend, const LatentLayout* layout, size_t bytes_max);

  std::shared_ptr<SequenceLatents> NewSequence() const;

  size_t bytes_claimed() const;
  // All tokens that there can be room for: whole pages.
  uint64_t tokens_max() const;

 private:
  friend class LatentClaim;
  struct Core;

  kernels::Backend* const backend_;
  const LatentLayout* const layout_;
  const std::shared_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_LATENT_POOL_H_
