#include "statestore/manifest_message.h"

#include "absl/strings/str_cat.h"
#include "proto/statestore.pb.h"
#include "statestore/records.h"
#include "statestore/sealed_message.h"

namespace deltafill {
namespace {

constexpr char kWhat[] = "manifest";
constexpr char kManifestVersion = 1;
constexpr size_t kManifestBytesMax = size_t{1} << 20;
// Id, kind, size and their tags take at most 64 bytes a part.
static_assert(kManifestPartsMax * 64 + kTenantBytesMax + kNumericsBytesMax + 1024 <
              kManifestBytesMax);

template <typename AnyDigest>
absl::Status ReadDigest(const std::string& raw, const char* field, AnyDigest* digest) {
  if (AnyDigest::FromBytes(raw, digest)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", raw.size(), " bytes, must be 32"));
}

}  // namespace

void ToMessage(const Manifest& manifest, v1::StoredManifest* message) {
  message->set_state(std::string(manifest.state.view()));
  message->set_tenant(manifest.tenant);
  message->set_fingerprint(std::string(manifest.fingerprint.view()));
  message->set_numerics(manifest.numerics);
  message->set_boundary(manifest.boundary);
  message->set_root(std::string(manifest.root.view()));
  for (const PartRef& part : manifest.parts) ToMessage(part, message->add_parts());
  message->set_created_unix_ms(manifest.created_unix_ms);
  message->set_pinned(manifest.pinned);
  message->set_damage(manifest.damage);
}

void ToMessage(const PartRef& part, v1::StoredPartRef* message) {
  message->set_id(std::string(part.id.view()));
  message->set_kind(static_cast<uint32_t>(part.kind));
  message->set_bytes(part.bytes);
}

absl::StatusOr<Manifest> FromMessage(const v1::StoredManifest& message) {
  Manifest manifest;
  absl::Status status = ReadDigest(message.state(), "state", &manifest.state);
  status.Update(ReadDigest(message.fingerprint(), "fingerprint", &manifest.fingerprint));
  status.Update(ReadDigest(message.root(), "root", &manifest.root));
  if (!status.ok()) return status;
  manifest.tenant = message.tenant();
  manifest.numerics = message.numerics();
  manifest.boundary = message.boundary();
  manifest.created_unix_ms = message.created_unix_ms();
  manifest.pinned = message.pinned();
  manifest.damage = message.damage();
  manifest.parts.reserve(message.parts_size());
  for (const v1::StoredPartRef& reference : message.parts()) {
    PartRef part;
    status = ReadDigest(reference.id(), "part id", &part.id);
    if (!status.ok()) return status;
    if (reference.kind() < static_cast<uint32_t>(PartKind::kRecurrent) ||
        reference.kind() > static_cast<uint32_t>(PartKind::kLogits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("part kind ", reference.kind(), " is not one of 1 to 4"));
    }
    part.kind = static_cast<PartKind>(reference.kind());
    part.bytes = reference.bytes();
    if (part.bytes > kPartBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("part bytes ", part.bytes, ", limit ", kPartBytesMax));
    }
    manifest.parts.push_back(part);
  }
  status = ValidateManifest(manifest);
  if (!status.ok()) return status;
  return manifest;
}

std::string EncodeManifest(const Manifest& manifest) {
  v1::StoredManifest message;
  ToMessage(manifest, &message);
  message.clear_damage();
  return Seal(kManifestVersion, message);
}

absl::StatusOr<Manifest> DecodeManifest(std::string_view encoded) {
  v1::StoredManifest message;
  absl::Status status = Unseal(kWhat, kManifestVersion, kManifestBytesMax, encoded, &message);
  if (!status.ok()) return status;
  message.clear_damage();
  absl::StatusOr<Manifest> manifest = FromMessage(message);
  if (!manifest.ok()) return Malformed(kWhat, std::string(manifest.status().message()));
  return manifest;
}

}  // namespace deltafill
