#include "statestore/records.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "statestore/sha256.h"

namespace deltafill {
namespace {

constexpr size_t kTenantTagBytes = 8;

std::string Prefixed(std::string_view prefix, std::string_view rest) {
  std::string key(prefix);
  key.append(rest);
  return key;
}

std::string TenantTag(std::string_view tenant) {
  Sha256 hasher;
  hasher.Update(tenant);
  const std::array<uint8_t, 32> digest = hasher.Finish();
  return {reinterpret_cast<const char*>(digest.data()), kTenantTagBytes};
}

}  // namespace

std::string SaltKey(std::string_view tenant) { return Prefixed(kSaltPrefix, tenant); }

std::string PartRecordKey(const PartId& id) { return Prefixed(kPartPrefix, id.view()); }

std::string LayerKey(const PartId& id, uint32_t position) {
  std::string key(id.view());
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(position >> shift));
  return key;
}

std::string ManifestKeyPrefix(std::string_view tenant) {
  return Prefixed(kManifestPrefix, TenantTag(tenant));
}

std::string ManifestKey(std::string_view tenant, const StateId& state) {
  return Prefixed(ManifestKeyPrefix(tenant), state.view());
}

std::string LastUseKey(const StateId& state) { return Prefixed(kLastUsePrefix, state.view()); }

std::string SnapshotKey(std::string_view tenant, std::string_view name) {
  return Prefixed(Prefixed(kSnapshotPrefix, TenantTag(tenant)), name);
}

absl::Status ValidateTenant(std::string_view tenant) {
  if (!tenant.empty() && tenant.size() <= kTenantBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tenant: ", tenant.size(), " bytes, must be 1 to ", kTenantBytesMax));
}

absl::Status ValidateManifest(const Manifest& manifest) {
  if (absl::Status status = ValidateTenant(manifest.tenant); !status.ok()) return status;
  if (manifest.numerics.size() > kNumericsBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("numerics: ", manifest.numerics.size(), " bytes, limit ", kNumericsBytesMax));
  }
  if (manifest.boundary == 0 || manifest.boundary % kBlockTokenCount != 0 ||
      manifest.boundary > kBoundaryMax) {
    return absl::InvalidArgumentError(absl::StrCat("boundary ", manifest.boundary,
                                                   ": must be a positive multiple of ",
                                                   kBlockTokenCount, " up to ", kBoundaryMax));
  }
  if (manifest.parts.empty() || manifest.parts.size() > kManifestPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts: ", manifest.parts.size(), ", must be 1 to ", kManifestPartsMax));
  }
  std::vector<PartId> ids;
  ids.reserve(manifest.parts.size());
  for (const PartRef& part : manifest.parts) ids.push_back(part.id);
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
    return absl::InvalidArgumentError("parts: one is named twice");
  }
  return absl::OkStatus();
}

}  // namespace deltafill
