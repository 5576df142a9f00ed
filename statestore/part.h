// Parts: the stored pieces of a prefix state. A part is a header, one checksum per layer and the
// layers' payloads back to back; it is immutable and content-addressed.
//
// Encoded form, little-endian, no padding; offsets and sizes in bytes:
//    0   4  magic "DFPT"
//    4   2  version, 1
//    6   1  kind
//    7   1  dtype
//    8   4  layout, 1: row-major, the last dimension contiguous
//   12   4  n, the number of layers
//   16  16  shape of one layer, 4 x u32
//   32   8  first_token
//   40   8  token_count
//   48   8  bytes of one layer
//   56  4n  model layer indices, u32, strictly ascending
//   ..  8n  XXH3-64 of each layer's bytes
//   ..   8  XXH3-64 of the header up to here
//   ..      payload: the layers in that order, back to back
// The part id is SHA-256(salt || encoded header (with checksums) || payload).
#ifndef DELTAFILL_STATESTORE_PART_H_
#define DELTAFILL_STATESTORE_PART_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "statestore/identity.h"

namespace deltafill {

enum class PartKind : uint8_t {
  kRecurrent = 1,  // per layer fp32 [head, V, K], K contiguous
  kConvTail =
      2,        // per layer [{q,k,v} channels concatenated, 3], oldest first: pre-convolution rows
  kLatent = 3,  // per attention layer [tokens, kv_lora_rank + rope dims]
  kLogits = 4,  // one "layer": [vocabulary] fp32, the last token's; only in exact-end exports
};

// "recurrent", "conv_tail", "latent", "logits"; "unknown" for other values.
const char* PartKindName(PartKind kind);

// Latents are stored in pieces that are cut at absolute multiples of this and at the boundary,
// whatever the ranges were: prefixes that share tokens share the whole pieces.
inline constexpr uint64_t kLatentPieceTokens = 4096;

enum class PartDType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2 };

struct PartHeader {
  PartKind kind = PartKind::kRecurrent;
  PartDType dtype = PartDType::kF32;
  std::vector<uint32_t> layers;  // model layer indices, strictly ascending; at most kPartLayersMax
  std::array<uint32_t, 4> shape{};  // of one layer, unused trailing dims are 1
  uint64_t first_token = 0;         // latents: where the piece starts; otherwise the boundary
  uint64_t token_count = 0;         // latents: tokens in the piece, positive; otherwise 0

  uint64_t LayerBytes() const;    // product of shape x element size; UINT64_MAX if it overflows
  uint64_t PayloadBytes() const;  // layers.size() x LayerBytes(); UINT64_MAX if it overflows
  uint64_t HeaderBytes() const;   // of the encoded header
  friend bool operator==(const PartHeader&, const PartHeader&) = default;
};

inline constexpr uint32_t kPartLayersMax = 4096;
inline constexpr uint64_t kPartBytesMax = uint64_t{1} << 30;  // encoded: header and payload
inline constexpr uint64_t kPartHeaderBytesMax = uint64_t{1} << 16;

// One layer's bytes, in the order of header.layers.
using LayerPayloads = std::span<const std::span<const std::byte>>;

// INVALID_ARGUMENT naming the field and the limit if the header breaks a rule above.
absl::Status ValidatePartHeader(const PartHeader& header);

// Header with checksums (XXH3-64 a layer, and one over the header itself).
// INVALID_ARGUMENT if the header breaks a rule or the payloads do not match it.
absl::StatusOr<std::string> EncodePartHeader(const PartHeader& header, LayerPayloads payloads);

struct DecodedPart {
  PartHeader header;
  std::vector<uint64_t> checksums;  // a layer
  uint64_t payload_offset = 0;      // in the encoded part
};

// Reads the header of an encoded part; the payload need not be there. DATA_LOSS for anything
// malformed: bad magic, version, checksum, sizes over the limits. Never reads past `encoded`.
absl::StatusOr<DecodedPart> DecodePartHeader(std::string_view encoded);

// DATA_LOSS naming the layer if its payload does not match its checksum.
absl::Status VerifyPartLayer(const DecodedPart& part, size_t layer_position,
                             std::span<const std::byte> payload);

PartId ComputePartId(const TenantSalt& salt, std::string_view encoded_header,
                     LayerPayloads payloads);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_PART_H_
