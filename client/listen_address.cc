#include "client/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace deltafill::client {
namespace {

constexpr uint32_t kPortMax = 65535;

struct HostAndPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostAndPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostAndPort parts;
  uint32_t port = 0;
  if (colon != std::string::npos) {
    parts = {address.substr(0, colon), address.substr(colon + 1)};
  }
  const bool bracketed =
      parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']';
  if (bracketed) parts.host = parts.host.substr(1, parts.host.size() - 2);
  const bool ambiguous = !bracketed && parts.host.find(':') != std::string::npos;
  if (parts.host.empty() || ambiguous || !absl::SimpleAtoi(parts.port, &port) || port > kPortMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", address, "': want HOST:PORT, an IPv6 host in [], the port 0 to ", kPortMax));
  }
  return parts;
}

// 0, or what errno says.
int TryToBind(const addrinfo& candidate) {
  const int descriptor =
      socket(candidate.ai_family, candidate.ai_socktype | SOCK_CLOEXEC, candidate.ai_protocol);
  if (descriptor < 0) return errno == EAFNOSUPPORT ? 0 : errno;  // gRPC falls back to IPv4
  const int on = 1;
  (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // as gRPC does
  const int error = bind(descriptor, candidate.ai_addr, candidate.ai_addrlen) == 0 ? 0 : errno;
  close(descriptor);
  return error;
}

}  // namespace

absl::Status CheckCanListen(const std::string& address) {
  for (const char* scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"}) {
    if (address.starts_with(scheme)) return absl::OkStatus();
  }
  const absl::StatusOr<HostAndPort> parts = Split(address);
  if (!parts.ok()) return parts.status();
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(parts->host.c_str(), parts->port.c_str(), &wanted, &found);
      error != 0) {
    return absl::UnavailableError(absl::StrCat("'", address, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> candidates(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    error = TryToBind(*candidate);
    if (error == 0) return absl::OkStatus();  // gRPC as well is content with one of them
  }
  return absl::UnavailableError(
      absl::StrCat("'", address, "': ", std::generic_category().message(error)));
}

}  // namespace deltafill::client
