#include "coordinator/front/tenant_resolver.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/lower_hex.h"
#include "statestore/sha256.h"

namespace deltafill::coordinator {
namespace {

constexpr std::string_view kTenantMetadata = "deltafill-tenant";
constexpr std::string_view kTenantDefault = "default";
constexpr std::string_view kAuthorizationMetadata = "authorization";
constexpr std::string_view kBearer = "bearer ";

using TokenHash = std::array<uint8_t, 32>;

class TrustingResolver final : public TenantResolver {
 public:
  absl::StatusOr<std::string> Resolve(const CallMetadata& metadata) const override {
    const auto [first, last] = metadata.equal_range(kTenantMetadata);
    if (first == last) return std::string(kTenantDefault);
    if (std::next(first) != last) {
      return absl::InvalidArgumentError("metadata deltafill-tenant: given more than once");
    }
    absl::Status status = CheckTenantName(first->second, "metadata deltafill-tenant");
    if (!status.ok()) return status;
    return first->second;
  }

  bool ChecksCredentials() const override { return false; }
};

struct Credential {
  std::string tenant;
  TokenHash hash;
};

class CredentialsResolver final : public TenantResolver {
 public:
  explicit CredentialsResolver(std::vector<Credential> credentials)
      : credentials_(std::move(credentials)) {}

  absl::StatusOr<std::string> Resolve(const CallMetadata& metadata) const override {
    const auto [first, last] = metadata.equal_range(kAuthorizationMetadata);
    if (first == last) {
      return absl::UnauthenticatedError("metadata authorization: Bearer TOKEN is required");
    }
    if (std::next(first) != last || !IsBearer(first->second) ||
        first->second.size() > kBearer.size() + kBearerTokenBytesMax) {
      return absl::UnauthenticatedError("metadata authorization: must be one Bearer TOKEN");
    }
    Sha256 hasher;
    hasher.Update(std::string_view(first->second).substr(kBearer.size()));
    const TokenHash hash = hasher.Finish();
    // Every entry is compared, found or not, so that time tells nothing.
    const Credential* found = nullptr;
    for (const Credential& credential : credentials_) {
      if (CRYPTO_memcmp(credential.hash.data(), hash.data(), hash.size()) == 0) found = &credential;
    }
    if (found == nullptr)
      return absl::UnauthenticatedError("metadata authorization: unknown token");
    return found->tenant;
  }

  bool ChecksCredentials() const override { return true; }

 private:
  // The scheme's name is case-insensitive.
  static bool IsBearer(std::string_view value) {
    if (value.size() <= kBearer.size()) return false;
    for (size_t i = 0; i < kBearer.size(); ++i) {
      const char c =
          value[i] >= 'A' && value[i] <= 'Z' ? static_cast<char>(value[i] + 32) : value[i];
      if (c != kBearer[i]) return false;
    }
    return true;
  }

  const std::vector<Credential> credentials_;
};

bool ParseHash(std::string_view hex, TokenHash* hash) {
  const std::optional<std::string> bytes = FromLowerHex(hex);
  if (!bytes || bytes->size() != hash->size()) return false;
  std::copy(bytes->begin(), bytes->end(), hash->begin());
  return true;
}

}  // namespace

std::unique_ptr<TenantResolver> NewTrustingResolver() {
  return std::make_unique<TrustingResolver>();
}

absl::StatusOr<std::unique_ptr<TenantResolver>> NewCredentialsResolver(std::string_view contents) {
  std::vector<Credential> credentials;
  std::istringstream lines{std::string(contents)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    Credential credential;
    std::string hex, more;
    if (!(words >> credential.tenant) || credential.tenant[0] == '#') continue;
    const std::string where = absl::StrCat("credentials line ", number);
    absl::Status status = CheckTenantName(credential.tenant, where);
    if (!status.ok()) return status;
    if (!(words >> hex) || !ParseHash(hex, &credential.hash) || (words >> more)) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": must be a tenant and the token's SHA-256 in 64 lower-case digits"));
    }
    for (const Credential& other : credentials) {
      if (other.hash == credential.hash) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": this token was given before"));
      }
    }
    credentials.push_back(std::move(credential));
  }
  if (credentials.empty()) return absl::InvalidArgumentError("credentials: no tenant is given");
  return std::make_unique<CredentialsResolver>(std::move(credentials));
}

absl::StatusOr<std::unique_ptr<TenantResolver>> LoadCredentials(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat("credentials file ", path, " cannot be read or is empty"));
  }
  return NewCredentialsResolver(contents.str());
}

absl::Status CheckTenantName(std::string_view name, std::string_view field) {
  bool allowed = !name.empty() && name.size() <= kTenantNameBytesMax;
  for (char c : name) {
    allowed = allowed && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-');
  }
  if (allowed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": a tenant's name has 1 to ",
                                                 kTenantNameBytesMax,
                                                 " characters of [A-Za-z0-9._-]"));
}

bool IsLoopbackAddress(std::string_view address) {
  if (address.substr(0, 5) == "unix:" || address.substr(0, 14) == "unix-abstract:") return true;
  for (std::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (address.substr(0, scheme.size()) == scheme) {
      address.remove_prefix(scheme.size());
      break;
    }
  }
  if (address == "::1") return true;
  if (!address.empty() && address[0] == '[') return address.substr(0, 5) == "[::1]";
  const std::string_view host = address.substr(0, address.rfind(':'));
  if (host == "localhost") return true;
  // Exactly four numbers: "127.example.org" is somebody else's name.
  if (host.substr(0, 4) != "127.") return false;
  int dots = 0;
  for (char c : host) {
    if (c == '.') ++dots;
    if (c != '.' && (c < '0' || c > '9')) return false;
  }
  return dots == 3;
}

absl::Status CheckListenAddress(std::string_view address, const TenantResolver& resolver) {
  if (resolver.ChecksCredentials() || IsLoopbackAddress(address)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("listen address ", std::string(address),
                   " can be reached from other machines, but no credentials are configured, so "
                   "every caller could "
                   "read every tenant's states; give a credentials file or listen on 127.0.0.1"));
}

}  // namespace deltafill::coordinator
