// Decoding part headers: arbitrary bytes, and the same with a right checksum, so that the fields
// behind it are reached. What decodes must encode to the same bytes again.
#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "statestore/part.h"

namespace deltafill {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void Decode(std::string_view encoded) {
  const absl::StatusOr<DecodedPart> part = DecodePartHeader(encoded);
  if (!part.ok()) {
    Check(absl::IsDataLoss(part.status()));
    return;
  }
  Check(ValidatePartHeader(part->header).ok());
  Check(part->payload_offset == part->header.HeaderBytes());
  Check(part->payload_offset <= encoded.size());
  Check(part->checksums.size() == part->header.layers.size());
  Check(part->header.HeaderBytes() + part->header.PayloadBytes() <= kPartBytesMax);
  if (part->header.PayloadBytes() > 1 << 16) return;
  const std::vector<std::byte> payload(part->header.PayloadBytes());
  std::vector<std::span<const std::byte>> layers;
  for (size_t i = 0; i < part->header.layers.size(); ++i) {
    layers.push_back(
        std::span(payload).subspan(i * part->header.LayerBytes(), part->header.LayerBytes()));
    (void)VerifyPartLayer(*part, i, layers.back());
  }
  const absl::StatusOr<std::string> again = EncodePartHeader(part->header, layers);
  Check(again.ok() && DecodePartHeader(*again)->header == part->header);
}

}  // namespace
}  // namespace deltafill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string encoded(reinterpret_cast<const char*>(bytes), size);
  deltafill::Decode(encoded);
  if (size < 24) return 0;
  uint32_t layer_count;
  std::memcpy(&layer_count, &encoded[12], sizeof(layer_count));
  const uint64_t covered = 56 + 12ull * (layer_count % 64);
  if (covered + 8 > size) return 0;
  layer_count %= 64;
  std::memcpy(&encoded[12], &layer_count, sizeof(layer_count));
  const uint64_t checksum = XXH3_64bits(encoded.data(), covered);
  std::memcpy(&encoded[covered], &checksum, sizeof(checksum));
  deltafill::Decode(encoded);
  return 0;
}
