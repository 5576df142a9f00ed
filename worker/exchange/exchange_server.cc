#include "worker/exchange/exchange_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/worker.grpc.pb.h"

namespace deltafill::worker {
namespace {

BoundaryAddress AddressOf(const v1::BoundaryMessage& message) {
  return {{message.attempt().prompt(), message.attempt().attempt()},
          message.range(),
          message.layer(),
          static_cast<PartKind>(message.kind())};
}

// Puts the pieces of one message after the other together.
class Reassembly {
 public:
  explicit Reassembly(const Mailbox& mailbox) : mailbox_(mailbox) {}

  // True when the message is whole. INVALID_ARGUMENT if the piece does not continue it.
  absl::StatusOr<bool> Add(const v1::BoundaryMessage& piece) {
    const BoundaryAddress address = AddressOf(piece);
    if (received_ == 0) {
      if (piece.kind() > UINT8_MAX) return absl::InvalidArgumentError("kind: over 255");
      absl::Status status = mailbox_.CheckMessage(address.layer, address.kind, piece.total_bytes());
      if (!status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("total_bytes: ", status.message()));
      }
      address_ = address;
      bytes_.resize(piece.total_bytes());
    } else if (address != address_ || piece.total_bytes() != bytes_.size()) {
      return absl::InvalidArgumentError("piece of another message before the end of this one");
    }
    if (piece.offset() != received_ || piece.bytes().size() > bytes_.size() - received_) {
      return absl::InvalidArgumentError(absl::StrCat("offset: is ", piece.offset(), " with ",
                                                     piece.bytes().size(), " bytes, expected ",
                                                     received_, " of ", bytes_.size()));
    }
    if (piece.bytes().empty()) return absl::InvalidArgumentError("bytes: empty piece");
    std::memcpy(bytes_.data() + received_, piece.bytes().data(), piece.bytes().size());
    received_ += piece.bytes().size();
    return received_ == bytes_.size();
  }

  const BoundaryAddress& address() const { return address_; }

  std::vector<std::byte> Take() {
    received_ = 0;
    return std::exchange(bytes_, {});
  }

 private:
  const Mailbox& mailbox_;
  BoundaryAddress address_;
  std::vector<std::byte> bytes_;
  size_t received_ = 0;
};

class ExchangeService final : public v1::BoundaryExchangeService::Service {
 public:
  explicit ExchangeService(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

  grpc::Status Publish(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::BoundaryAck, v1::BoundaryMessage>* stream) override {
    Reassembly reassembly(*mailbox_);
    v1::BoundaryMessage piece;
    while (stream->Read(&piece)) {
      absl::StatusOr<bool> whole = reassembly.Add(piece);
      if (!whole.ok()) return Refuse(whole.status());
      if (!*whole) continue;
      absl::Status status = mailbox_->Deliver(reassembly.address(), reassembly.Take());
      if (!status.ok()) return Refuse(status);
      v1::BoundaryAck ack;
      *ack.mutable_attempt() = piece.attempt();
      ack.set_range(piece.range());
      ack.set_layer(piece.layer());
      ack.set_kind(piece.kind());
      if (!stream->Write(ack)) break;
    }
    return grpc::Status::OK;
  }

 private:
  static grpc::Status Refuse(const absl::Status& status) {
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace

struct ExchangeServer::Core {
  explicit Core(std::shared_ptr<Mailbox> mailbox) : service(std::move(mailbox)) {}
  ~Core() {
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now());
  }

  ExchangeService service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<ExchangeServer>> ExchangeServer::Start(
    const std::string& listen, std::shared_ptr<Mailbox> mailbox) {
  auto core = std::make_unique<Core>(std::move(mailbox));
  grpc::ServerBuilder builder;
  // Two workers on one port would silently share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Links ping to notice a vanished machine.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &core->port);
  builder.RegisterService(&core->service);
  core->server = builder.BuildAndStart();
  if (core->server == nullptr || core->port == 0) {
    return absl::UnavailableError(absl::StrCat("exchange: cannot listen on ", listen));
  }
  return std::unique_ptr<ExchangeServer>(new ExchangeServer(std::move(core)));
}

ExchangeServer::ExchangeServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ExchangeServer::~ExchangeServer() = default;

int ExchangeServer::port() const { return core_->port; }

}  // namespace deltafill::worker
