#include "statestore/part.h"

#include <xxhash.h>

#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "statestore/sha256.h"

namespace deltafill {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as they lie");

constexpr std::string_view kMagic = "DFPT";
constexpr uint16_t kVersion = 1;
constexpr uint32_t kLayoutRowMajor = 1;
constexpr size_t kFixedBytes = 56;
constexpr size_t kBytesPerLayer = sizeof(uint32_t) + sizeof(uint64_t);
static_assert(kFixedBytes + kPartLayersMax * kBytesPerLayer + sizeof(uint64_t) <=
              kPartHeaderBytesMax);

uint64_t Multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

uint64_t ElementBytes(PartDType dtype) { return dtype == PartDType::kF32 ? 4 : 2; }

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(std::string_view* in) {
  T value;
  std::memcpy(&value, in->data(), sizeof(value));
  in->remove_prefix(sizeof(value));
  return value;
}

absl::Status Malformed(std::string_view what) {
  return absl::DataLossError(
      absl::StrCat("part header: ", absl::string_view(what.data(), what.size())));
}

}  // namespace

const char* PartKindName(PartKind kind) {
  switch (kind) {
    case PartKind::kRecurrent:
      return "recurrent";
    case PartKind::kConvTail:
      return "conv_tail";
    case PartKind::kLatent:
      return "latent";
    case PartKind::kLogits:
      return "logits";
  }
  return "unknown";
}

uint64_t PartHeader::LayerBytes() const {
  uint64_t bytes = ElementBytes(dtype);
  for (uint32_t extent : shape) bytes = Multiply(bytes, extent);
  return bytes;
}

uint64_t PartHeader::PayloadBytes() const { return Multiply(layers.size(), LayerBytes()); }

uint64_t PartHeader::HeaderBytes() const {
  return kFixedBytes + layers.size() * kBytesPerLayer + sizeof(uint64_t);
}

absl::Status ValidatePartHeader(const PartHeader& header) {
  if (header.kind < PartKind::kRecurrent || header.kind > PartKind::kLogits) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind ", static_cast<int>(header.kind), " is not one of 1 to 4"));
  }
  if (header.dtype > PartDType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype ", static_cast<int>(header.dtype), " is not one of 0 to 2"));
  }
  if (header.layers.empty() || header.layers.size() > kPartLayersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers: ", header.layers.size(), ", must be 1 to ", kPartLayersMax));
  }
  for (size_t i = 1; i < header.layers.size(); ++i) {
    if (header.layers[i] <= header.layers[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("layers must ascend: ", header.layers[i],
                                                     " follows ", header.layers[i - 1]));
    }
  }
  const uint64_t payload_bytes = header.PayloadBytes();
  if (payload_bytes == 0) return absl::InvalidArgumentError("shape: an extent is 0");
  if (payload_bytes > kPartBytesMax - header.HeaderBytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: header and payload have over ", kPartBytesMax, " bytes"));
  }
  if ((header.kind == PartKind::kLatent) != (header.token_count > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_count ", header.token_count,
                     ": must be positive for latents and 0 for other kinds"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EncodePartHeader(const PartHeader& header, LayerPayloads payloads) {
  if (absl::Status status = ValidatePartHeader(header); !status.ok()) return status;
  if (payloads.size() != header.layers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("payloads: ", payloads.size(), " for ", header.layers.size(), " layers"));
  }
  std::string encoded(kMagic);
  encoded.reserve(header.HeaderBytes());
  Append(&encoded, kVersion);
  Append(&encoded, header.kind);
  Append(&encoded, header.dtype);
  Append(&encoded, kLayoutRowMajor);
  Append(&encoded, static_cast<uint32_t>(header.layers.size()));
  for (uint32_t extent : header.shape) Append(&encoded, extent);
  Append(&encoded, header.first_token);
  Append(&encoded, header.token_count);
  Append(&encoded, header.LayerBytes());
  for (uint32_t layer : header.layers) Append(&encoded, layer);
  for (size_t i = 0; i < payloads.size(); ++i) {
    if (payloads[i].size() != header.LayerBytes()) {
      return absl::InvalidArgumentError(absl::StrCat("payload of layer ", header.layers[i], ": ",
                                                     payloads[i].size(), " bytes, must be ",
                                                     header.LayerBytes()));
    }
    Append(&encoded, uint64_t{XXH3_64bits(payloads[i].data(), payloads[i].size())});
  }
  Append(&encoded, uint64_t{XXH3_64bits(encoded.data(), encoded.size())});
  return encoded;
}

absl::StatusOr<DecodedPart> DecodePartHeader(std::string_view encoded) {
  if (encoded.size() < kFixedBytes) return Malformed("shorter than its fixed fields");
  std::string_view rest = encoded;
  if (!rest.starts_with(kMagic)) return Malformed("bad magic");
  rest.remove_prefix(kMagic.size());
  if (Take<uint16_t>(&rest) != kVersion) return Malformed("unknown version");
  DecodedPart part;
  PartHeader& header = part.header;
  header.kind = static_cast<PartKind>(Take<uint8_t>(&rest));
  header.dtype = static_cast<PartDType>(Take<uint8_t>(&rest));
  if (Take<uint32_t>(&rest) != kLayoutRowMajor) return Malformed("unknown layout");
  const uint32_t layer_count = Take<uint32_t>(&rest);
  if (layer_count == 0 || layer_count > kPartLayersMax) return Malformed("number of layers");
  for (uint32_t& extent : header.shape) extent = Take<uint32_t>(&rest);
  header.first_token = Take<uint64_t>(&rest);
  header.token_count = Take<uint64_t>(&rest);
  const uint64_t layer_bytes = Take<uint64_t>(&rest);
  if (rest.size() < layer_count * kBytesPerLayer + sizeof(uint64_t)) return Malformed("cut short");
  header.layers.resize(layer_count);
  part.checksums.resize(layer_count);
  for (uint32_t& layer : header.layers) layer = Take<uint32_t>(&rest);
  for (uint64_t& checksum : part.checksums) checksum = Take<uint64_t>(&rest);
  const size_t covered_bytes = encoded.size() - rest.size();
  if (Take<uint64_t>(&rest) != XXH3_64bits(encoded.data(), covered_bytes)) {
    return Malformed("its checksum does not match");
  }
  if (absl::Status status = ValidatePartHeader(header); !status.ok()) {
    return Malformed({status.message().data(), status.message().size()});
  }
  if (layer_bytes != header.LayerBytes()) return Malformed("layer bytes and shape disagree");
  part.payload_offset = encoded.size() - rest.size();
  return part;
}

absl::Status VerifyPartLayer(const DecodedPart& part, size_t layer_position,
                             std::span<const std::byte> payload) {
  if (payload.size() == part.header.LayerBytes() &&
      XXH3_64bits(payload.data(), payload.size()) == part.checksums[layer_position]) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("checksum of layer ", part.header.layers[layer_position], " does not match"));
}

PartId ComputePartId(const TenantSalt& salt, std::string_view encoded_header,
                     LayerPayloads payloads) {
  Sha256 hasher;
  hasher.Update(salt.view());
  hasher.Update(encoded_header);
  for (std::span<const std::byte> payload : payloads) hasher.Update(payload);
  return PartId{hasher.Finish()};
}

}  // namespace deltafill
