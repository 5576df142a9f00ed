#include "client/connection.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace deltafill::client {
namespace {

constexpr std::chrono::seconds kConnectMax{20};

const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= 0 && code <= grpc::UNAUTHENTICATED ? kNames[code] : "UNKNOWN";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Connection::Connection(const ServerOptions& options) : options_(options) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // Fail prints what went wrong, in our words
  auto credentials = grpc::InsecureChannelCredentials();
  if (!options.tls_ca_file.empty()) {
    authorities_ = ReadFile(options.tls_ca_file);
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = authorities_;
    credentials = grpc::SslCredentials(tls);
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  channel_ = grpc::CreateCustomChannel(options.server, credentials, arguments);
  stub_ = v1::PrefillService::NewStub(channel_);
}

void Connection::Connect() const {
  const auto deadline = std::chrono::system_clock::now() + kConnectMax;
  grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
  while ((state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) &&
         channel_->WaitForStateChange(state, deadline)) {
    state = channel_->GetState(/*try_to_connect=*/true);
  }
}

bool Connection::Prepare(grpc::ClientContext* context) const {
  // With an empty text gRPC would fall back to the system's authorities.
  if (!options_.tls_ca_file.empty() && authorities_.find("CERTIFICATE-----") == std::string::npos) {
    std::fprintf(stderr, "deltafill: --tls-ca %s: cannot be read or has no PEM certificate\n",
                 options_.tls_ca_file.c_str());
    return false;
  }
  if (options_.timeout_s > 0) {
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(int64_t(options_.timeout_s * 1000)));
  }
  if (!options_.tenant.empty()) context->AddMetadata("deltafill-tenant", options_.tenant);
  if (!options_.token_file.empty()) {
    std::ifstream file(options_.token_file);
    std::string token;
    if (!(file >> token)) {
      std::fprintf(stderr, "deltafill: --token-file %s: no token there\n",
                   options_.token_file.c_str());
      return false;
    }
    context->AddMetadata("authorization", "Bearer " + token);
  }
  return true;
}

int Connection::Fail(const grpc::Status& status) const {
  std::fprintf(stderr, "deltafill: %s: %s\n", CodeName(status.error_code()),
               status.error_message().c_str());
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
    std::fprintf(stderr,
                 "deltafill: what answers on %s does not serve this verb; clients want the address "
                 "that serve or coordinator has as --listen (--server, DELTAFILL_SERVER)\n",
                 options_.server.c_str());
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && options_.timeout_s > 0) {
    std::fprintf(stderr, "deltafill: --timeout-s %g has passed\n", options_.timeout_s);
  }
  // A service that answered may itself lack something, its state store say.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      channel_->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY) {
    std::fprintf(stderr,
                 "deltafill: is a service listening on %s, %s TLS? (--server, DELTAFILL_SERVER, "
                 "--tls-ca)\n",
                 options_.server.c_str(), options_.tls_ca_file.empty() ? "without" : "with");
  }
  return 1;
}

}  // namespace deltafill::client
