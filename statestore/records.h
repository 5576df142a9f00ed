// Keys and values of what a store keeps in its engine. Family meta, by the key's first byte:
//   'f'                                   format version, u32
//   's' tenant name                       salt, 32 bytes
//   'p' part id                           1 byte: 1 if quarantined, then the encoded part header
//   'm' tenant tag (8) state id           manifest, see EncodeManifest
//   'n' tenant tag (8) name               snapshot record, see EncodeSnapshotRecord
//   'u' state id                          last use, i64: microseconds since 1970
// Family parts: part id, layer position (u32 big-endian): the layer's bytes. A layer a value, so
// that a read of some layers does not touch the others.
#ifndef DELTAFILL_STATESTORE_RECORDS_H_
#define DELTAFILL_STATESTORE_RECORDS_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/identity.h"
#include "statestore/store.h"

namespace deltafill {

inline constexpr uint32_t kStoreFormatVersion = 1;
inline constexpr std::string_view kFormatKey = "f";
inline constexpr std::string_view kSaltPrefix = "s";
inline constexpr std::string_view kPartPrefix = "p";
inline constexpr std::string_view kManifestPrefix = "m";
inline constexpr std::string_view kLastUsePrefix = "u";
inline constexpr std::string_view kSnapshotPrefix = "n";

std::string SaltKey(std::string_view tenant);
std::string PartRecordKey(const PartId& id);
std::string LayerKey(const PartId& id, uint32_t position);
// Manifests of one tenant lie together: this is their common prefix.
std::string ManifestKeyPrefix(std::string_view tenant);
std::string ManifestKey(std::string_view tenant, const StateId& state);
std::string LastUseKey(const StateId& state);
std::string SnapshotKey(std::string_view tenant, std::string_view name);

// The digest behind a key's prefix of prefix_bytes; false if the length is wrong.
template <typename AnyDigest>
bool DigestOfKey(std::string_view key, size_t prefix_bytes, AnyDigest* digest) {
  return key.size() >= prefix_bytes && AnyDigest::FromBytes(key.substr(prefix_bytes), digest);
}

template <typename T>
std::string EncodeScalar(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
std::optional<T> DecodeScalar(std::string_view raw) {
  T value;
  if (raw.size() != sizeof(value)) return std::nullopt;
  std::memcpy(&value, raw.data(), sizeof(value));
  return value;
}

// INVALID_ARGUMENT naming the field and the limit.
absl::Status ValidateTenant(std::string_view tenant);
absl::Status ValidateManifest(const Manifest& manifest);

// Version byte, protobuf StoredManifest, XXH3-64 of both.
std::string EncodeManifest(const Manifest& manifest);

// DATA_LOSS for anything malformed or over a limit.
absl::StatusOr<Manifest> DecodeManifest(std::string_view encoded);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_RECORDS_H_
