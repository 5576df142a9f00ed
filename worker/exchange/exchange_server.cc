#include "worker/exchange/exchange_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/worker.grpc.pb.h"
#include "worker/exchange/link_traffic.h"
#include "worker/exchange/wire_messages.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

absl::Status CheckSize(const Mailbox& mailbox, const BoundaryAddress& address,
                       const v1::BoundaryMessage& message) {
  absl::Status status = mailbox.CheckMessage(address.layer, address.kind, message.total_bytes());
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("total_bytes: ", status.message()));
}

// Puts the pieces of one message after the other together.
class Reassembly {
 public:
  explicit Reassembly(const Mailbox& mailbox) : mailbox_(mailbox) {}

  // True when the message is whole. INVALID_ARGUMENT if the piece does not continue it.
  absl::StatusOr<bool> Add(const v1::BoundaryMessage& piece) {
    DELTAFILL_TRY_ASSIGN(address, AddressOf(piece));
    if (received_ == 0) {
      DELTAFILL_TRY(CheckSize(mailbox_, address, piece));
      address_ = address;
      start_ = LinkTraffic::Clock::now();
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
  LinkTraffic::Clock::time_point start() const { return start_; }
  bool empty() const { return received_ == 0; }

  std::vector<std::byte> Take() {
    received_ = 0;
    return std::exchange(bytes_, {});
  }

 private:
  const Mailbox& mailbox_;
  BoundaryAddress address_;
  std::vector<std::byte> bytes_;
  size_t received_ = 0;
  LinkTraffic::Clock::time_point start_;
};

using Stream = grpc::ServerReaderWriter<v1::BoundaryAck, v1::BoundaryMessage>;

// One stream of one sender.
class Receiving {
 public:
  Receiving(Mailbox& mailbox, const ExchangeServerOptions& options, grpc::ServerContext& context)
      : mailbox_(mailbox), options_(options), context_(context), reassembly_(mailbox) {}

  ~Receiving() { LogTraffic(); }

  void LogTraffic() {
    const std::string passed = traffic_.Take();
    if (!passed.empty()) Log(passed);
  }

  // The first message that is wrong ends the stream, with its status.
  absl::Status Take(const v1::BoundaryMessage& message, Stream& stream) {
    if (message.has_device_link() || message.by_device_link()) {
      if (!reassembly_.empty()) {
        return absl::InvalidArgumentError("device link: in the middle of another message's pieces");
      }
      return message.has_device_link() ? TakeOffer(message, stream) : TakeDevice(message, stream);
    }
    DELTAFILL_TRY_ASSIGN(whole, reassembly_.Add(message));
    if (!whole) return absl::OkStatus();
    const auto start = reassembly_.start();
    return Deliver(reassembly_.address(), ReceivedState(reassembly_.Take()), false, start, stream);
  }

 private:
  absl::Status TakeOffer(const v1::BoundaryMessage& message, Stream& stream) {
    if (is_started_) {
      return absl::InvalidArgumentError("device_link: not the first message of the stream");
    }
    is_started_ = true;
    DELTAFILL_TRY_ASSIGN(offer, OfferOf(message));
    const absl::Status opened = Open(offer);
    v1::BoundaryAck answer;
    answer.mutable_device_link()->set_open(opened.ok());
    answer.mutable_device_link()->set_refusal(std::string(opened.message()));
    answer.mutable_device_link()->set_for_good(absl::IsFailedPrecondition(opened));
    Log(opened.ok() ? absl::StrCat("device link open, ", options_.transport->description())
                    : absl::StrCat("no device link: ", opened.message()));
    stream.Write(answer);  // if it does not arrive, the next read ends the stream
    return absl::OkStatus();
  }

  absl::Status Open(const DeviceOffer& offer) {
    if (options_.transport == nullptr) {
      return absl::FailedPreconditionError("it has no device links");
    }
    if (options_.transport->card() == offer.card) {
      return absl::FailedPreconditionError("it is on the sender's own card");
    }
    return FromOperator(options_.transport->Open(
        offer.id, LinkEnd::kReceiver, options_.device_open_timeout,
        [this] { return context_.IsCancelled(); }, &device_link_));
  }

  absl::Status TakeDevice(const v1::BoundaryMessage& message, Stream& stream) {
    if (device_link_ == nullptr) {
      return absl::InvalidArgumentError("by_device_link: this stream has no device link");
    }
    DELTAFILL_TRY_ASSIGN(address, AddressOf(message));
    DELTAFILL_TRY(CheckSize(mailbox_, address, message));
    const auto start = LinkTraffic::Clock::now();
    // Also of attempts that are over: what was sent must be received.
    absl::StatusOr<ReceivedState> room = mailbox_.NewRoom(message.total_bytes(), false);
    if (!room.ok())
      return absl::AbortedError(absl::StrCat("device link: ", room.status().message()));
    const kernels::Status received = device_link_->Receive(
        room->data(), room->bytes(), [this] { return context_.IsCancelled(); });
    if (!received.ok()) {
      return absl::AbortedError(absl::StrCat("device link: ", received.message()));
    }
    return Deliver(address, *std::move(room), true, start, stream);
  }

  absl::Status Deliver(const BoundaryAddress& address, ReceivedState state, bool by_device_link,
                       LinkTraffic::Clock::time_point start, Stream& stream) {
    is_started_ = true;
    traffic_.Add(by_device_link, address.kind, state.bytes(), start);
    DELTAFILL_TRY(mailbox_.Deliver(address, std::move(state)));
    v1::BoundaryAck ack;
    ToWire(address, &ack);
    stream.Write(ack);
    return absl::OkStatus();
  }

  void Log(const std::string& line) const {
    if (options_.log) options_.log(absl::StrCat("exchange from ", context_.peer(), ": ", line));
  }

  Mailbox& mailbox_;
  const ExchangeServerOptions& options_;
  grpc::ServerContext& context_;
  Reassembly reassembly_;
  std::unique_ptr<DeviceLink> device_link_;
  LinkTraffic traffic_;
  bool is_started_ = false;
};

class ExchangeService final : public v1::BoundaryExchangeService::Service {
 public:
  ExchangeService(std::shared_ptr<Mailbox> mailbox, ExchangeServerOptions options)
      : mailbox_(std::move(mailbox)), options_(std::move(options)) {}

  grpc::Status Publish(grpc::ServerContext* context, Stream* stream) override {
    Receiving receiving(*mailbox_, options_, *context);
    {
      std::lock_guard lock(mutex_);
      streams_.insert(&receiving);
    }
    absl::Status status;
    v1::BoundaryMessage message;
    while (status.ok() && stream->Read(&message)) status = receiving.Take(message, *stream);
    std::lock_guard lock(mutex_);
    streams_.erase(&receiving);
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

  void LogTraffic() {
    std::lock_guard lock(mutex_);
    for (Receiving* stream : streams_) stream->LogTraffic();
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const ExchangeServerOptions options_;
  std::mutex mutex_;
  std::set<Receiving*> streams_;  // guarded by mutex_
};

}  // namespace

struct ExchangeServer::Core {
  Core(std::shared_ptr<Mailbox> mailbox, ExchangeServerOptions options)
      : service(std::move(mailbox), std::move(options)) {}
  ~Core() {
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now());
  }

  ExchangeService service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<ExchangeServer>> ExchangeServer::Start(
    const std::string& listen, std::shared_ptr<Mailbox> mailbox, ExchangeServerOptions options) {
  auto core = std::make_unique<Core>(std::move(mailbox), std::move(options));
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

void ExchangeServer::LogTraffic() { core_->service.LogTraffic(); }

}  // namespace deltafill::worker
