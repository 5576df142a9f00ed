// TLS on the client port.
#ifndef DELTAFILL_COORDINATOR_FRONT_SERVER_TLS_H_
#define DELTAFILL_COORDINATOR_FRONT_SERVER_TLS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace grpc {
class ServerCredentials;
}

namespace deltafill::coordinator {

// PEM files: the server's certificate chain and its private key. Both empty: no TLS.
struct TlsFiles {
  std::string certificate;
  std::string key;
};

// What a port is opened with. INVALID_ARGUMENT naming the file if one is missing, cannot be read or
// parsed, or if the key is not the certificate's.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> LoadServerCredentials(
    const TlsFiles& files);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_SERVER_TLS_H_
