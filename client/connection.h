// A call's stub, context and error text, shared by the verbs that talk to a service.
#ifndef DELTAFILL_CLIENT_CONNECTION_H_
#define DELTAFILL_CLIENT_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "client/options.h"
#include "proto/prefill.grpc.pb.h"

namespace deltafill::client {

class Connection {
 public:
  explicit Connection(const ServerOptions& options);

  v1::PrefillService::Stub& stub() { return *stub_; }
  // For stubs of the same server's other services.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Waits until there is a connection, or none can be made: calls would do it, and say why. After
  // Prepare, which checks what the connection needs.
  void Connect() const;

  // Sets deadline, tenant and bearer token. False after saying why.
  bool Prepare(grpc::ClientContext* context) const;

  // Prints "deltafill: CODE: message", with a hint where one helps. Returns the exit code, 1.
  int Fail(const grpc::Status& status) const;

 private:
  ServerOptions options_;
  std::string authorities_;  // PEM; "": no TLS
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PrefillService::Stub> stub_;
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_CONNECTION_H_
