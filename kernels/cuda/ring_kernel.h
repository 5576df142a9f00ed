// The ring path (sm_90a, K = V = 128): one persistent kernel. Groups of 256 threads prepare blocks,
// in the order in which the state chains need them, into rings of slots that stay in L2; two CTAs
// walk each chain, one for each half of V, and bring the slots in with the copy engine. A CTA
// chains, and prepares with one group if streams are many, or prepares with two. The workspace does
// not grow with the number of tokens. All CTAs must be resident at once, so the launch is
// cooperative.
#ifndef DELTAFILL_KERNELS_CUDA_RING_KERNEL_H_
#define DELTAFILL_KERNELS_CUDA_RING_KERNEL_H_

#include <cuda_runtime.h>

#include "kernels/cuda/device_params.h"
#include "kernels/cuda/slot_layout.h"
#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

inline constexpr int kRingSlices = 2;  // CTAs a chain, each with 64 columns of V

struct RingStream {
  int64_t steps = 0;
  int64_t first_item = 0;  // into RingParams::items
  int64_t items = 0;
};

// How far a stream has come. Each array has lines of its own: groups and chains poll them.
struct RingFlags {
  alignas(128) uint32_t ready[kMaxRingSlots];   // steps prepared in the slot so far
  alignas(128) uint32_t consumed[kRingSlices];  // steps read by each slice
  alignas(128) uint32_t ticket;                 // the next step to prepare
};

struct RingItem {
  int64_t item = 0;        // sequence * value_heads + value head
  int64_t first_step = 0;  // of its stream
  int64_t first_row = 0;   // of the sequence
  int32_t rows = 0;
  int32_t value_head = 0;
};

// q, k and the channels' gates as boxes of 64 rows.
struct RingRows {
  TensorMap q, k, f;
  bool mapped = false;  // rows and strides are aligned as maps need it
};

// What the chains move as boxes: tiles of V and O, and the slots' decay and beta.
struct RingTiles {
  TensorMap v, o;
  bool v_mapped = false, o_mapped = false;  // if aligned, where chains do not prepare
  TensorMap scalars;  // [slots, 2, kSlotScalars / 2] words of two bytes from SlotLayout::kDecay on
};

inline constexpr int kSlotScalars = (SlotLayout<128>::kUsedBytes - SlotLayout<128>::kDecay) / 2;

struct RingParams {
  RingRows rows;
  RingTiles tiles;
  BlockInputs in;
  ChainInputs chain;
  const RingStream* streams = nullptr;
  const RingItem* items = nullptr;
  int stream_count = 0;
  int item_count = 0;
  int ring_slots = 0;
  int64_t most_steps = 0;      // of a stream
  bool even_streams = false;   // all streams have most_steps
  bool chains_prepare = true;  // chaining CTAs also prepare
  bool runs_chains = true;     // false: measurements of the other role alone
  bool runs_preparation = true;
  uint8_t* slots = nullptr;     // [streams, ring_slots]
  RingFlags* flags = nullptr;   // [streams]
  float* exact_rows = nullptr;  // [preparing groups, 3, 64, 128]
};

cudaError_t LaunchRing(const RingParams& params, int ctas, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RING_KERNEL_H_
