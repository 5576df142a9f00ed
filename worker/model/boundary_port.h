// How a layer meets its neighbours in the grid of tasks (range, layer): it takes the boundary state
// before its range, hands on the one after it, and leaves copies at the boundaries that are kept.
// The model knows nothing of workers, stores or transports; they implement this.
#ifndef DELTAFILL_WORKER_MODEL_BOUNDARY_PORT_H_
#define DELTAFILL_WORKER_MODEL_BOUNDARY_PORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/latent_attention.h"
#include "statestore/part.h"

namespace deltafill::worker {

// Buffers are in the backend's memory and have the size of the model's StateEntry for (layer,
// kind). Called by the one thread that runs the range, layers ascending.
class BoundaryPort {
 public:
  virtual ~BoundaryPort() = default;

  // The state before the range; nullptr is the zero state. Blocks until it is there. Valid until
  // TaskDone(layer). CANCELLED once the attempt was aborted.
  virtual absl::StatusOr<const void*> Await(uint32_t layer, PartKind kind) = 0;

  // Where to write the state after the range; nullptr if nobody needs it.
  virtual void* Outgoing(uint32_t layer, PartKind kind) = 0;

  // The outgoing state is written (on a GPU: issued on the lane's stream). Called as early as it
  // can be.
  virtual absl::Status HandOn(uint32_t layer, PartKind kind) = 0;

  // Where to write the state at the range's capture with this index.
  virtual void* Capture(int capture, uint32_t layer, PartKind kind) = 0;

  // Attention layers: the sequence's latent cache at this layer, with room for the range's own
  // rows; first_token is the range's. The layer writes its own rows, then calls ShareLatents.
  virtual absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) = 0;

  // The range's own latents are written (on a GPU: issued on the lane's stream). Hands them on and
  // returns once those of all earlier tokens are there. CANCELLED once the attempt was aborted.
  virtual absl::Status ShareLatents(uint32_t layer) = 0;

  // The layer is finished with this range. CANCELLED stops the range here.
  virtual absl::Status TaskDone(uint32_t layer) = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_BOUNDARY_PORT_H_
