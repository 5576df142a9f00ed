#include "worker/exchange/exchange_link.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/worker.grpc.pb.h"
#include "worker/exchange/device_path.h"
#include "worker/exchange/link_traffic.h"
#include "worker/exchange/peer_channel.h"
#include "worker/exchange/wire_messages.h"

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kReconnectPause{50};
constexpr std::chrono::milliseconds kCancelPoll{20};
constexpr std::chrono::milliseconds kWatchPause{200};

using Stream = grpc::ClientReaderWriter<v1::BoundaryMessage, v1::BoundaryAck>;

struct Message {
  BoundaryAddress address;
  SharedState state;
  Clock::time_point started;  // the writing
  bool by_device_link = false;
};

// The peer will answer the same way however often it is asked.
bool IsFinal(grpc::StatusCode code) {
  return code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::UNIMPLEMENTED;
}

}  // namespace

struct ExchangeLink::Core {
  Core(std::string peer_name, const std::string& address, ExchangeLinkOptions link_options)
      : peer(std::move(peer_name)),
        options(std::move(link_options)),
        limits(options.limits),
        device_path(options.device.transport, limits.device_open_timeout) {
    channel = ConnectPeer(address);
    stub = v1::BoundaryExchangeService::NewStub(channel);
    thread = std::thread([this] { Run(); });
  }

  ~Core() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
      if (context != nullptr) context->TryCancel();
    }
    changed.notify_all();
    thread.join();
  }

  void Run();
  bool Connect(std::string* cause);
  grpc::Status RunStream();
  std::unique_ptr<DeviceLink> OpenDeviceLink(Stream& stream);
  void WatchStream();
  void WriteMessages(Stream& stream, DeviceLink* device_link);
  absl::Status WriteMessage(Stream& stream, const Message& message, DeviceLink* device_link);
  absl::Status WritePieces(Stream& stream, const Message& message);
  void TakeAck(const v1::BoundaryAck& ack);
  bool StreamIsOver();
  void LogTraffic();
  void Log(const std::string& line) const {
    if (options.log) options.log(line);
  }
  void GiveUp(const std::string& cause);

  const std::string peer;
  const ExchangeLinkOptions options;
  const ExchangeLinkLimits limits;
  DevicePath device_path;
  LinkTraffic traffic;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::BoundaryExchangeService::Stub> stub;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::deque<Message> unacknowledged;  // oldest first
  size_t unacknowledged_bytes = 0;
  size_t written = 0;  // of unacknowledged, on the present stream
  bool connected = false;
  bool stream_ended = false;
  bool is_stuck = false;  // the last stream was ended for that
  bool stopping = false;
  uint64_t losses = 0;  // times the peer was given up
  absl::Status last_loss;
  Clock::time_point last_progress;
  Clock::time_point last_write;            // of a piece, that the peer's end had room for
  grpc::ClientContext* context = nullptr;  // of the present stream

  std::thread thread;  // last: it uses all of the above
};

void ExchangeLink::Core::Run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    changed.wait(lock, [this] { return stopping || !unacknowledged.empty(); });
    if (stopping) break;
    while (!stopping && !unacknowledged.empty()) {
      lock.unlock();
      std::string cause;
      bool is_final = false;
      if (Connect(&cause)) {
        const grpc::Status status = RunStream();
        is_final = IsFinal(status.error_code());
        cause = status.error_message();
      }
      lock.lock();
      if (is_stuck) cause = "it is stuck: it took nothing for too long, though it is connected";
      connected = false;
      if (stopping || unacknowledged.empty()) break;
      if (is_final || is_stuck || Clock::now() - last_progress >= limits.unreachable_after) {
        lock.unlock();
        GiveUp(cause);
        lock.lock();
        break;
      }
      changed.wait_for(lock, kReconnectPause, [this] { return stopping; });
    }
  }
}

bool ExchangeLink::Core::Connect(std::string* cause) {
  const auto give_up = [this] {
    std::lock_guard lock(mutex);
    return stopping || Clock::now() >= last_progress + limits.unreachable_after;
  };
  if (WaitConnected(*channel, give_up)) return true;
  *cause = "no connection";
  return false;
}

// Beside a stream: ends it if the peer takes nothing for too long, though its connection stands.
void ExchangeLink::Core::WatchStream() {
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kWatchPause, [this] { return stopping || stream_ended; })) {
    const auto since = std::max(last_progress, last_write);
    if (unacknowledged.empty() || Clock::now() - since < limits.stuck_after) continue;
    is_stuck = true;
    context->TryCancel();
    return;
  }
}

grpc::Status ExchangeLink::Core::RunStream() {
  grpc::ClientContext stream_context;
  auto stream = stub->Publish(&stream_context);
  {
    std::lock_guard lock(mutex);
    context = &stream_context;
    if (stopping) stream_context.TryCancel();
    stream_ended = false;
    is_stuck = false;
    written = 0;
  }
  std::thread watch([this] { WatchStream(); });
  std::thread reader([this, &stream] {
    v1::BoundaryAck ack;
    while (stream->Read(&ack)) TakeAck(ack);
    {
      std::lock_guard lock(mutex);
      stream_ended = true;
    }
    changed.notify_all();
  });
  std::unique_ptr<DeviceLink> device_link = OpenDeviceLink(*stream);
  {
    std::lock_guard lock(mutex);
    connected = true;
  }
  changed.notify_all();
  WriteMessages(*stream, device_link.get());
  device_link.reset();  // what the peer has not received by now it never will
  reader.join();
  watch.join();
  const grpc::Status status = stream->Finish();
  if (status.error_code() == grpc::StatusCode::ABORTED) device_path.CountFailure();
  {
    std::lock_guard lock(mutex);
    context = nullptr;
  }
  LogTraffic();
  return status;
}

void ExchangeLink::Core::LogTraffic() {
  const std::string passed = traffic.Take();
  if (!passed.empty()) Log(absl::StrCat("exchange to ", peer, ": ", passed));
}

bool ExchangeLink::Core::StreamIsOver() {
  std::lock_guard lock(mutex);
  return stopping || stream_ended;
}

// nullptr: all bytes go through the host.
std::unique_ptr<DeviceLink> ExchangeLink::Core::OpenDeviceLink(Stream& stream) {
  const auto start = Clock::now();
  absl::StatusOr<std::optional<DeviceOffer>> offer = device_path.Offer();
  if (offer.ok() && !offer->has_value()) return nullptr;
  absl::StatusOr<std::unique_ptr<DeviceLink>> link = nullptr;
  if (!offer.ok()) {
    link = offer.status();
  } else {
    v1::BoundaryMessage message;
    ToWire(**offer, &message);
    if (!stream.Write(message)) return nullptr;
    link = device_path.Open([this] { return StreamIsOver(); });
  }
  if (StreamIsOver()) return nullptr;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  {
    std::lock_guard lock(mutex);
    last_progress += took;
  }
  if (link.ok()) {
    Log(absl::StrCat("exchange to ", peer, ": device link open in ", took.count(), " ms, ",
                     options.device.transport->description()));
    return *std::move(link);
  }
  if (!absl::IsFailedPrecondition(link.status())) device_path.CountFailure();
  Log(absl::StrCat("exchange to ", peer,
                   ": no device link, states go through the host: ", link.status().message()));
  return nullptr;
}

// Returns when the stream is over, and ends it if something failed on this side.
void ExchangeLink::Core::WriteMessages(Stream& stream, DeviceLink* device_link) {
  for (;;) {
    Message message;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock,
                   [this] { return stopping || stream_ended || written < unacknowledged.size(); });
      if (stopping || stream_ended) break;
      Message& next = unacknowledged[written++];
      next.started = Clock::now();
      next.by_device_link = device_link != nullptr && !next.state->on_host();
      message = next;
    }
    const absl::Status status = WriteMessage(stream, message, device_link);
    if (absl::IsUnavailable(status)) break;  // the stream's own status says more
    if (status.ok()) continue;
    if (!StreamIsOver()) Log(absl::StrCat("exchange to ", peer, ": ", status.message()));
    if (message.by_device_link) device_path.CountFailure();
    std::lock_guard lock(mutex);
    context->TryCancel();
    return;
  }
  // A broken stream ends its reader by itself, and its status is worth having; cancel to stop only.
  std::lock_guard lock(mutex);
  if (stopping) context->TryCancel();
}

// UNAVAILABLE: the stream has broken. Other errors are this side's.
absl::Status ExchangeLink::Core::WriteMessage(Stream& stream, const Message& message,
                                              DeviceLink* device_link) {
  if (message.state->on_host()) return WritePieces(stream, message);
  if (!message.by_device_link) {
    Message on_host = message;
    absl::StatusOr<SharedState> copied = options.device.copy_to_host(*message.state);
    if (!copied.ok()) return absl::InternalError(copied.status().message());
    on_host.state = *std::move(copied);
    return WritePieces(stream, on_host);
  }
  // Issued before it is announced: the receiver's waiting holds multiprocessors of its card.
  const kernels::Status sent = device_link->Send(message.state->data(), message.state->bytes(),
                                                 [this] { return StreamIsOver(); });
  if (!sent.ok()) return absl::InternalError(absl::StrCat("device link: ", sent.message()));
  v1::BoundaryMessage announced;
  ToWire(message.address, message.state->bytes(), &announced);
  announced.set_by_device_link(true);
  return stream.Write(announced) ? absl::OkStatus() : absl::UnavailableError("the stream broke");
}

absl::Status ExchangeLink::Core::WritePieces(Stream& stream, const Message& message) {
  const size_t total = message.state->bytes();
  v1::BoundaryMessage piece;
  ToWire(message.address, total, &piece);
  size_t offset = 0;
  do {
    const size_t count = std::min(limits.piece_bytes_max, total - offset);
    piece.set_offset(offset);
    piece.set_bytes(message.state->data() + offset, count);
    if (!stream.Write(piece)) return absl::UnavailableError("the stream broke");
    offset += count;
    std::lock_guard lock(mutex);
    last_write = Clock::now();
  } while (offset < total);
  return absl::OkStatus();
}

void ExchangeLink::Core::TakeAck(const v1::BoundaryAck& ack) {
  if (ack.has_device_link()) {
    const v1::DeviceLinkAnswer& answer = ack.device_link();
    const std::string refusal = absl::StrCat("the receiver: ", answer.refusal());
    device_path.SetAnswer(answer.open()       ? absl::OkStatus()
                          : answer.for_good() ? absl::FailedPreconditionError(refusal)
                                              : absl::InternalError(refusal));
    return;
  }
  std::lock_guard lock(mutex);
  for (size_t i = 0; i < written; ++i) {
    const Message& message = unacknowledged[i];
    if (!Acknowledges(ack, message.address)) continue;
    const size_t bytes = message.state->bytes();
    traffic.Add(message.by_device_link, message.address.kind, bytes, message.started);
    if (message.by_device_link) device_path.CountSuccess();
    unacknowledged_bytes -= bytes;
    unacknowledged.erase(unacknowledged.begin() + static_cast<std::ptrdiff_t>(i));
    --written;
    last_progress = Clock::now();
    changed.notify_all();
    return;
  }
}

void ExchangeLink::Core::GiveUp(const std::string& cause) {
  std::set<AttemptKey> attempts;
  absl::Status status = absl::UnavailableError(absl::StrCat(peer, " cannot be reached: ", cause));
  {
    std::lock_guard lock(mutex);
    for (const Message& message : unacknowledged) attempts.insert(message.address.attempt);
    unacknowledged.clear();
    unacknowledged_bytes = 0;
    written = 0;
    ++losses;
    last_loss = status;
  }
  changed.notify_all();
  for (const AttemptKey& attempt : attempts) options.lost(attempt, status);
}

ExchangeLink::ExchangeLink(std::string peer, const std::string& address,
                           ExchangeLinkOptions options)
    : core_(std::make_unique<Core>(std::move(peer), address, std::move(options))) {}

ExchangeLink::~ExchangeLink() = default;

absl::Status ExchangeLink::Send(const BoundaryAddress& address, SharedState state,
                                const std::function<bool()>& is_cancelled) {
  const size_t bytes = state->bytes();
  Core& core = *core_;
  std::unique_lock lock(core.mutex);
  const uint64_t losses_before = core.losses;
  // False if the sender is cancelled before `ready`, the peer's loss or the link's end.
  const auto wait_until = [&](auto ready) {
    const auto woken = [&] { return core.stopping || core.losses != losses_before || ready(); };
    while (!core.changed.wait_for(lock, kCancelPoll, woken)) {
      if (is_cancelled()) return false;
    }
    return true;
  };
  const auto cancelled = [] { return absl::CancelledError("aborted"); };
  if (!wait_until([&] {
        return core.unacknowledged.empty() ||
               core.unacknowledged_bytes + bytes <= core.limits.unacknowledged_bytes_max;
      })) {
    return cancelled();
  }
  if (!core.stopping && core.losses == losses_before) {
    if (core.unacknowledged.empty()) core.last_progress = Clock::now();
    core.unacknowledged_bytes += bytes;
    core.unacknowledged.push_back({address, std::move(state)});
    core.changed.notify_all();
    if (!wait_until([&] { return core.connected; })) return cancelled();
  }
  if (core.stopping) return absl::CancelledError("the link is closed");
  return core.losses == losses_before ? absl::OkStatus() : core.last_loss;
}

void ExchangeLink::LogTraffic() { core_->LogTraffic(); }

bool ExchangeLink::Flush(std::chrono::milliseconds timeout) {
  Core& core = *core_;
  std::unique_lock lock(core.mutex);
  const uint64_t losses_before = core.losses;
  core.changed.wait_for(lock, timeout, [&] {
    return core.stopping || core.unacknowledged.empty() || core.losses != losses_before;
  });
  return core.unacknowledged.empty() && core.losses == losses_before;
}

}  // namespace deltafill::worker
