// Where each layer's boundary state lives inside a prefix state's buffer.
#ifndef DELTAFILL_WORKER_MODEL_STATE_LAYOUT_H_
#define DELTAFILL_WORKER_MODEL_STATE_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"
#include "statestore/part.h"

namespace deltafill::worker {

// One fixed-size piece of a layer's boundary state.
struct StateEntry {
  uint32_t layer = 0;
  PartKind kind = PartKind::kRecurrent;
  PartDType dtype = PartDType::kF32;
  std::array<uint32_t, 4> shape{};  // unused trailing dims are 1
  size_t offset = 0;                // in the buffer, a multiple of 64
  size_t bytes = 0;
};

// What attention layers keep of every token: rows of a LatentCache.
struct LatentLayout {
  std::vector<uint32_t> layers;  // ascending; empty: the model has no attention layers
  uint32_t width = 0;            // values of a row: kv_lora_rank + rope dims
  PartDType dtype = PartDType::kF32;

  size_t RowBytes() const { return size_t{width} * (dtype == PartDType::kF32 ? 4 : 2); }
};

// Entries of one kind stand together and ascend by layer, so a part is a run of entries.
// Recurrent: fp32 [head, V, K, 1]. Convolution tail: [q, k, v channels concatenated, 3], oldest
// first, where the channels of q, of k and of v are each [head, channel].
struct StateLayout {
  std::vector<StateEntry> entries;
  size_t bytes = 0;      // of the buffer
  LatentLayout latents;  // kept beside the buffer

  // nullptr if the layer has no such piece.
  const StateEntry* Find(uint32_t layer, PartKind kind) const {
    for (const StateEntry& entry : entries) {
      if (entry.layer == layer && entry.kind == kind) return &entry;
    }
    return nullptr;
  }
};

struct ModelConfig;

// The layout of every prefix state of a model with this configuration. Latents have the backend's
// activation dtype.
StateLayout MakeStateLayout(const ModelConfig& config,
                            kernels::DType activation = kernels::DType::kF32);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_STATE_LAYOUT_H_
