// Addresses to listen on, checked before a model is loaded.
#ifndef DELTAFILL_CLIENT_LISTEN_ADDRESS_H_
#define DELTAFILL_CLIENT_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"

namespace deltafill::client {

// INVALID_ARGUMENT: not HOST:PORT with a port of 0 to 65535 (gRPC would take the port modulo
// 65536). UNAVAILABLE, with the system's reason: nobody can listen there now, for instance because
// another process does. What gRPC takes besides (unix:, unix-abstract:, dns:, ipv4:, ipv6:) is not
// checked.
absl::Status CheckCanListen(const std::string& address);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_LISTEN_ADDRESS_H_
