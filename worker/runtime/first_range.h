// The range that a device's lane runs before it serves.
#ifndef DELTAFILL_WORKER_RUNTIME_FIRST_RANGE_H_
#define DELTAFILL_WORKER_RUNTIME_FIRST_RANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/model/latent_cache.h"
#include "worker/model/model.h"
#include "worker/runtime/range_port.h"

namespace deltafill::worker {

// Prefills `token_count` tokens from the zero state, the lane's most, so that all workspaces of its
// operators are there afterwards; leaves the state in `outgoing` and its latents, with room for one
// token more, in `latents`. RESOURCE_EXHAUSTED with the sizes if they do not fit.
absl::Status RunFirstRange(Model& model, Lane& lane, const PortLane& port_lane, int64_t token_count,
                           StateBufferRef outgoing, LatentCache& latents);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_FIRST_RANGE_H_
