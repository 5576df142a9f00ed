// Rows of a latent cache, across its pages, by copies of contiguous runs on a lane.
#ifndef DELTAFILL_WORKER_RUNTIME_LATENT_ROWS_H_
#define DELTAFILL_WORKER_RUNTIME_LATENT_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/operators.h"
#include "worker/model/latent_cache.h"

namespace deltafill::worker {

// Rows [begin, end) of a layer to `to` in the backend's memory, back to back.
absl::Status GatherLatents(kernels::Operators& operators, const LatentCache& cache, uint32_t layer,
                           uint64_t begin, uint64_t end, std::byte* to);

// Rows [begin, end), which the cache has room for, from `from` in the backend's memory, or in
// memory of the host that stays until the lane is synchronised.
absl::Status ScatterLatents(kernels::Operators& operators, const std::byte* from, bool from_host,
                            uint32_t layer, uint64_t begin, uint64_t end, LatentCache& cache);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_LATENT_ROWS_H_
