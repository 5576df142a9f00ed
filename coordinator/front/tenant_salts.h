// The tenants' salts, remembered: every key of a tenant derives from its salt.
#ifndef DELTAFILL_COORDINATOR_FRONT_TENANT_SALTS_H_
#define DELTAFILL_COORDINATOR_FRONT_TENANT_SALTS_H_

#include <map>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

// Thread-safe.
class TenantSalts {
 public:
  explicit TenantSalts(StateStore& store) : store_(store) {}

  // The store's, asked for once a tenant. Errors are the store's and are not remembered.
  absl::StatusOr<TenantSalt> Get(const std::string& tenant);

 private:
  StateStore& store_;
  std::mutex mutex_;
  std::map<std::string, TenantSalt> salts_;  // under mutex_
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_TENANT_SALTS_H_
