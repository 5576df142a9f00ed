// The latents of the attempts that this worker prefills ranges of: kept from its first range of an
// attempt to its last, or to the attempt's end.
#ifndef DELTAFILL_WORKER_RUNTIME_LATENT_SHELF_H_
#define DELTAFILL_WORKER_RUNTIME_LATENT_SHELF_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "worker/exchange/boundary_exchange.h"
#include "worker/runtime/latent_pool.h"

namespace deltafill::worker {

// Thread-safe; what it hands out is for one thread.
class LatentShelf {
 public:
  explicit LatentShelf(const LatentPool* pool) : pool_(pool) {}

  // The attempt's latents; empty ones (held_tokens 0) if there are none yet.
  std::shared_ptr<SequenceLatents> Open(const AttemptKey& attempt);

  // This and older attempts of the prompt. Their memory goes when nobody uses it any more.
  void Drop(const AttemptKey& attempt);
  void DropAll();

  const LatentPool& pool() const { return *pool_; }
  size_t size() const;

 private:
  const LatentPool* const pool_;
  mutable std::mutex mutex_;
  std::map<AttemptKey, std::shared_ptr<SequenceLatents>> sequences_;  // guarded by mutex_
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_LATENT_SHELF_H_
