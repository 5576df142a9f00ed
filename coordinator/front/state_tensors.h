// The parts of one state in memory, verified, ready to be laid out; latents are streamed instead
// (state_latents.h).
#ifndef DELTAFILL_COORDINATOR_FRONT_STATE_TENSORS_H_
#define DELTAFILL_COORDINATOR_FRONT_STATE_TENSORS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/front/layout.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct StateTensors {
  Part recurrent;
  Part conv;
  std::optional<Part> logits;

  // The layer at a position of recurrent.header.layers.
  static std::span<const std::byte> Layer(const Part& part, size_t position);
};

// Reads the layers asked for (none: all). INVALID_ARGUMENT naming a layer that the state does not
// have; DATA_LOSS if a checksum fails. Passes over latents.
absl::StatusOr<StateTensors> ReadStateTensors(StateStore& store, std::span<const PartRef> parts,
                                              std::span<const uint32_t> layers);

// The zero state of a model. FAILED_PRECONDITION if its workers did not tell the shapes.
absl::StatusOr<StateTensors> ZeroStateTensors(const ServedModel& model,
                                              std::span<const uint32_t> layers);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_STATE_TENSORS_H_
