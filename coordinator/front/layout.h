// Layouts in which a state's tensors are given out. What comes out is a function of the stored
// bits, the layout and the ranges asked for, of nothing else.
//
// With H heads, K and V the head dimensions, A the activation dtype, N a model layer index. A head
// range [b, e) replaces H by e - b. Where G heads of values share a head of q and k, H counts those
// of values; q and k have H / G, and of a range those that its heads of values use.
//
// "canonical": as stored.
//   layers.N.recurrent_state   F32 [H, V, K]
//   layers.N.conv_state.q      A   [H, K, 3]   the last 3 pre-convolution rows, oldest first
//   layers.N.conv_state.k      A   [H, K, 3]
//   layers.N.conv_state.v      A   [H, V, 3]
//
// "fla": what flash-linear-attention keeps in its cache for a batch of one; for layer N
//   cache.update(recurrent_state=layers.N.recurrent_state, layer_idx=N, offset=tokens,
//                conv_state=(layers.N.conv_state.q, layers.N.conv_state.k, layers.N.conv_state.v)).
//   layers.N.recurrent_state   F32 [1, H, V, K]   (its layers' order since 0.5.1)
//   layers.N.conv_state.q      A   [1, H*K, 4]
//   layers.N.conv_state.k      A   [1, H*K, 4]
//   layers.N.conv_state.v      A   [1, H*V, 4]
// Its convolution cache is as wide as the kernel (4), oldest first. Column 0 is never read: a step
// shifts it out before it multiplies, and a prefill that starts from a cache reaches back 3 rows
// only. It is 0 here, where fla itself has a row that no longer matters.
//
// Layers of latent attention (MLA) keep R = kv_lora_rank + rope dims values of every token, shared
// by all heads, so that a head range does not cut them:
//
// "canonical": layers.N.latent   A [tokens, R]
// "fla" has no cache of latents: asking for such a layer in it is an error that names the layer.
//
// Both, at the exact end: logits  F32 [vocabulary], of the last token.
#ifndef DELTAFILL_COORDINATOR_FRONT_LAYOUT_H_
#define DELTAFILL_COORDINATOR_FRONT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "statestore/part.h"

namespace deltafill::coordinator {

enum class TensorLayout { kCanonical, kFla };

// "" is "canonical". INVALID_ARGUMENT naming what there is.
absl::StatusOr<TensorLayout> ParseTensorLayout(std::string_view name);

struct TensorShape {
  std::string name;
  PartDType dtype = PartDType::kF32;
  std::vector<uint64_t> shape;
  uint64_t ByteCount() const;
};

// What the shapes of a state's parts say of the model.
struct StateDims {
  uint32_t heads = 0;    // of values
  uint32_t sharing = 1;  // of them that share a head of q and k
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  uint32_t conv_rows = 0;
  PartDType conv_dtype = PartDType::kF32;
};

// recurrent: [H, V, K] fp32; conv: [H/G*K + H/G*K + H*V, rows]. INTERNAL if they do not fit
// together.
absl::StatusOr<StateDims> DeriveStateDims(const PartHeader& recurrent, const PartHeader& conv);

struct HeadRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// end 0: all heads. INVALID_ARGUMENT naming the field and the number of heads.
absl::StatusOr<HeadRange> CheckHeadRange(uint32_t begin, uint32_t end, const StateDims& dims);

// The four tensors of a layer, in the order above.
std::vector<TensorShape> LayerShapes(TensorLayout layout, uint32_t layer, const StateDims& dims,
                                     HeadRange heads);

// Their bytes back to back, little-endian and row-major. recurrent and conv are the layer's whole
// payloads, of the sizes that dims say.
std::string LayerBytes(TensorLayout layout, const StateDims& dims, HeadRange heads,
                       std::span<const std::byte> recurrent, std::span<const std::byte> conv);

// "F32", "BF16", "F16".
const char* DTypeName(PartDType dtype);
size_t DTypeBytes(PartDType dtype);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_LAYOUT_H_
