// Tenants and their salts.
#include <openssl/rand.h>

#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {

uint32_t EngineStore::TenantIndex(std::string_view tenant) const {
  const auto found = tenant_indices_.find(tenant);
  return found == tenant_indices_.end() ? UINT32_MAX : found->second;
}

uint32_t EngineStore::AddTenant(std::string_view tenant) {
  const uint32_t known = TenantIndex(tenant);
  if (known != UINT32_MAX) return known;
  const auto index = static_cast<uint32_t>(tenants_.size());
  tenants_.emplace_back(tenant);
  tenant_indices_.emplace(tenant, index);
  return index;
}

absl::StatusOr<TenantSalt> EngineStore::GetTenantSalt(std::string_view tenant) {
  if (absl::Status status = ValidateTenant(tenant); !status.ok()) return status;
  const auto cached = [&]() -> const TenantSalt* {
    std::lock_guard lock(mutex_);
    const auto found = salts_.find(tenant);
    return found == salts_.end() ? nullptr : &found->second;  // never changes, never moves
  };
  if (const TenantSalt* salt = cached()) return *salt;
  std::lock_guard salt_lock(salt_mutex_);
  if (const TenantSalt* salt = cached()) return *salt;

  // The tables know all salts that can be read. One on disk that they do not know is damaged: its
  // states are lost to everybody, and a new salt lets the tenant go on.
  const std::string key = SaltKey(tenant);
  const absl::Status on_disk = engine_->Get(Family::kMeta, key, [](std::string_view) {});
  if (on_disk.ok() || absl::IsDataLoss(on_disk)) {
    Log("a tenant's salt is damaged: it gets a new one, and its stored states are misses");
  } else if (!absl::IsNotFound(on_disk)) {
    return on_disk;
  }

  TenantSalt salt;
  if (RAND_bytes(salt.bytes.data(), static_cast<int>(salt.bytes.size())) != 1) {
    return absl::UnavailableError("the system's source of randomness failed");
  }
  WriteSet writes;
  writes.Put(Family::kMeta, key, salt.view());
  if (absl::Status status = engine_->Write(writes, Durability::kSynced); !status.ok())
    return status;
  std::lock_guard lock(mutex_);
  AddTenant(tenant);
  salts_.emplace(tenant, salt);
  return salt;
}

}  // namespace deltafill
