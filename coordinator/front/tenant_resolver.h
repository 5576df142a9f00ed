// Who is calling: from a call's metadata to the tenant's name. No request field says it.
#ifndef DELTAFILL_COORDINATOR_FRONT_TENANT_RESOLVER_H_
#define DELTAFILL_COORDINATOR_FRONT_TENANT_RESOLVER_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deltafill::coordinator {

using CallMetadata = std::multimap<std::string, std::string, std::less<>>;  // names in lower case

// Thread-safe.
class TenantResolver {
 public:
  virtual ~TenantResolver() = default;

  // UNAUTHENTICATED for credentials that are missing or unknown; INVALID_ARGUMENT for a bad name.
  virtual absl::StatusOr<std::string> Resolve(const CallMetadata& metadata) const = 0;

  // False if anybody who can reach the port may name any tenant.
  virtual bool ChecksCredentials() const = 0;
};

// Takes the name in `deltafill-tenant`, "default" if absent. For loopback only: see
// CheckListenAddress.
std::unique_ptr<TenantResolver> NewTrustingResolver();

// From the contents of a credentials file: lines of
//   TENANT SHA256-OF-TOKEN-IN-LOWER-CASE-HEXADECIMAL
// Empty lines and those that begin with '#' are skipped; a tenant may have several tokens. Calls
// then carry `authorization: Bearer TOKEN`. Tokens are compared as hashes, in constant time.
// INVALID_ARGUMENT naming the line.
absl::StatusOr<std::unique_ptr<TenantResolver>> NewCredentialsResolver(std::string_view contents);

// NOT_FOUND naming the file if it cannot be read.
absl::StatusOr<std::unique_ptr<TenantResolver>> LoadCredentials(const std::string& path);

// 1 to 64 characters of [A-Za-z0-9._-]; INVALID_ARGUMENT beginning with `field` otherwise.
absl::Status CheckTenantName(std::string_view name, std::string_view field);

// True for 127.0.0.0/8, [::1], localhost and unix sockets, with or without port.
bool IsLoopbackAddress(std::string_view address);

// FAILED_PRECONDITION if `address` can be reached from other machines and the resolver believes
// whatever name it is given.
absl::Status CheckListenAddress(std::string_view address, const TenantResolver& resolver);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_TENANT_RESOLVER_H_
