// Parts: the stored pieces of a prefix state. A part is a header, one checksum per layer and the
// layers' payloads back to back; it is immutable and content-addressed.
//
// Encoded form, little-endian, no padding: see EncodePartHeader. The part id is
// SHA-256(salt || encoded header (with checksums) || payload).
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
  kConvTail = 2,   // per layer [{q,k,v} channels concatenated, 3], oldest first: pre-convolution rows
  kLatent = 3,     // per attention layer [tokens, kv_lora_rank + rope dims]
  kLogits = 4,     // one "layer": [vocabulary] fp32, the last token's; only in exact-end exports
};

enum class PartDType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2 };

struct PartHeader {
  PartKind kind = PartKind::kRecurrent;
  PartDType dtype = PartDType::kF32;
  std::vector<uint32_t> layers;       // model layer indices, strictly ascending; at most kPartLayersMax
  std::array<uint32_t, 4> shape{};    // of one layer, unused trailing dims are 1
  uint64_t first_token = 0;           // latents: where the piece starts; otherwise the boundary
  uint64_t token_count = 0;           // latents: tokens in the piece; otherwise 0

  uint64_t LayerBytes() const;        // product of shape x element size
  uint64_t PayloadBytes() const;      // layers.size() x LayerBytes()
  friend bool operator==(const PartHeader&, const PartHeader&) = default;
};

inline constexpr uint32_t kPartLayersMax = 4096;
inline constexpr uint64_t kPartLayerBytesMax = uint64_t{1} << 32;

// One layer's bytes, in the order of header.layers.
using LayerPayloads = std::span<const std::span<const std::byte>>;

// Header with checksums (XXH3-64 a layer, and one over the header itself).
// INVALID_ARGUMENT if payloads do not match the header.
absl::StatusOr<std::string> EncodePartHeader(const PartHeader& header, LayerPayloads payloads);

struct DecodedPart {
  PartHeader header;
  std::vector<uint64_t> checksums;  // a layer
  uint64_t payload_offset = 0;      // in the encoded part
};

// Reads the header of an encoded part. DATA_LOSS for anything malformed: bad magic, version,
// checksum, sizes over the limits. Never reads past `encoded`.
absl::StatusOr<DecodedPart> DecodePartHeader(std::string_view encoded);

// DATA_LOSS naming the layer if its payload does not match its checksum.
absl::Status VerifyPartLayer(const DecodedPart& part, size_t layer_position,
                             std::span<const std::byte> payload);

PartId ComputePartId(const TenantSalt& salt, std::string_view encoded_header,
                     LayerPayloads payloads);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_PART_H_
