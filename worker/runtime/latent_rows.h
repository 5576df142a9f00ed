// Rows of a latent cache, across its pages. Host memory only.
#ifndef DELTAFILL_WORKER_RUNTIME_LATENT_ROWS_H_
#define DELTAFILL_WORKER_RUNTIME_LATENT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/latent_cache.h"

namespace deltafill::worker {

// Rows [begin, end) of a layer, back to back.
std::vector<std::byte> GatherLatents(const LatentCache& cache, uint32_t layer, uint64_t begin,
                                     uint64_t end);

// Writes whole rows from `begin` on; the cache has room for them.
void ScatterLatents(std::span<const std::byte> rows, uint32_t layer, uint64_t begin,
                    LatentCache& cache);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_LATENT_ROWS_H_
