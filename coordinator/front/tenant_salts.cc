#include "coordinator/front/tenant_salts.h"

#include "coordinator/front/limits.h"

namespace deltafill::coordinator {

absl::StatusOr<TenantSalt> TenantSalts::Get(const std::string& tenant) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = salts_.find(tenant);
    if (found != salts_.end()) return found->second;
  }
  // Outside the lock: it blocks on disk or network.
  absl::StatusOr<TenantSalt> salt = store_.GetTenantSalt(tenant);
  if (!salt.ok()) return salt;
  const std::lock_guard lock(mutex_);
  if (salts_.size() >= kSaltsCachedMax) salts_.clear();
  salts_[tenant] = *salt;
  return salt;
}

}  // namespace deltafill::coordinator
