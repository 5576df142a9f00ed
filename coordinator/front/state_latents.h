// The latents of one state: where they are, read piece by piece and layer by layer.
#ifndef DELTAFILL_COORDINATOR_FRONT_STATE_LATENTS_H_
#define DELTAFILL_COORDINATOR_FRONT_STATE_LATENTS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/layout.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct StateLatents {
  LatentShape shape;            // .layers: those to be given out; empty: none
  uint64_t tokens = 0;          // rows of each
  std::vector<PartRef> pieces;  // ascending
};

// The latents of all layers of a state at token `tokens`. Reads one piece for the shape. DATA_LOSS
// if the pieces are not as many as the tokens need, or the one that is read is damaged.
absl::StatusOr<StateLatents> FindLatents(StateStore& store, std::span<const PartRef> parts,
                                         uint64_t tokens);

// Takes the layers that are in latents.shape.layers out of `wanted` and keeps only those of them to
// be given out. An empty `wanted` stays empty and means all. True if recurrent layers are wanted.
bool SplitLayers(StateLatents* latents, std::vector<uint32_t>* wanted);

// layers.N.latent: [tokens, width].
TensorShape LatentTensor(const StateLatents& latents, uint32_t layer);

// Calls send with the rows of one layer, in order, a piece at a time. DATA_LOSS if a piece is
// damaged, gone or not the one that belongs there.
absl::Status ReadLatents(StateStore& store, const StateLatents& latents, uint32_t layer,
                         const std::function<absl::Status(std::string_view bytes)>& send);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_STATE_LATENTS_H_
