#include "worker/exchange/exchange_link.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>

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

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kReconnectPause{50};
constexpr std::chrono::milliseconds kCancelPoll{20};

struct Message {
  BoundaryAddress address;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

bool Acknowledges(const v1::BoundaryAck& ack, const BoundaryAddress& address) {
  return ack.attempt().prompt() == address.attempt.prompt &&
         ack.attempt().attempt() == address.attempt.attempt && ack.range() == address.range &&
         ack.layer() == address.layer && ack.kind() == static_cast<uint32_t>(address.kind);
}

// The peer will answer the same way however often it is asked.
bool IsFinal(grpc::StatusCode code) {
  return code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::UNIMPLEMENTED;
}

}  // namespace

struct ExchangeLink::Core {
  Core(std::string peer_name, std::string address, const ExchangeLinkLimits& link_limits,
       MessagesLost lost_callback)
      : peer(std::move(peer_name)), limits(link_limits), lost(std::move(lost_callback)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // A machine that vanishes sends nothing: only pings tell.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
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
  bool WriteMessage(grpc::ClientReaderWriter<v1::BoundaryMessage, v1::BoundaryAck>& stream,
                    const Message& message);
  void TakeAck(const v1::BoundaryAck& ack);
  void GiveUp(const std::string& cause);

  const std::string peer;
  const ExchangeLinkLimits limits;
  const MessagesLost lost;
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
  bool stopping = false;
  uint64_t losses = 0;  // times the peer was given up
  absl::Status last_loss;
  Clock::time_point last_progress;
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
      connected = false;
      if (stopping || unacknowledged.empty()) break;
      if (is_final || Clock::now() - last_progress >= limits.unreachable_after) {
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
  // In short steps, so that a stop is noticed.
  for (;;) {
    Clock::time_point deadline;
    {
      std::lock_guard lock(mutex);
      if (stopping) return false;
      deadline = last_progress + limits.unreachable_after;
    }
    if (channel->WaitForConnected(std::chrono::system_clock::now() +
                                  std::chrono::milliseconds(100))) {
      return true;
    }
    if (Clock::now() >= deadline) {
      *cause = "no connection";
      return false;
    }
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
    written = 0;
    connected = true;
  }
  changed.notify_all();
  std::thread reader([this, &stream] {
    v1::BoundaryAck ack;
    while (stream->Read(&ack)) TakeAck(ack);
    {
      std::lock_guard lock(mutex);
      stream_ended = true;
    }
    changed.notify_all();
  });
  for (;;) {
    Message message;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock,
                   [this] { return stopping || stream_ended || written < unacknowledged.size(); });
      if (stopping || stream_ended) break;
      message = unacknowledged[written++];
    }
    if (!WriteMessage(*stream, message)) break;
  }
  // A broken stream ends its reader by itself, and its status is worth having; cancel to stop only.
  {
    std::lock_guard lock(mutex);
    if (stopping) stream_context.TryCancel();
  }
  reader.join();
  const grpc::Status status = stream->Finish();
  std::lock_guard lock(mutex);
  context = nullptr;
  return status;
}

bool ExchangeLink::Core::WriteMessage(
    grpc::ClientReaderWriter<v1::BoundaryMessage, v1::BoundaryAck>& stream,
    const Message& message) {
  v1::BoundaryMessage piece;
  piece.mutable_attempt()->set_prompt(message.address.attempt.prompt);
  piece.mutable_attempt()->set_attempt(message.address.attempt.attempt);
  piece.set_range(message.address.range);
  piece.set_layer(message.address.layer);
  piece.set_kind(static_cast<uint32_t>(message.address.kind));
  piece.set_total_bytes(message.bytes->size());
  size_t offset = 0;
  do {
    const size_t count = std::min(limits.piece_bytes_max, message.bytes->size() - offset);
    piece.set_offset(offset);
    piece.set_bytes(message.bytes->data() + offset, count);
    if (!stream.Write(piece)) return false;
    offset += count;
  } while (offset < message.bytes->size());
  return true;
}

void ExchangeLink::Core::TakeAck(const v1::BoundaryAck& ack) {
  std::lock_guard lock(mutex);
  for (size_t i = 0; i < written; ++i) {
    if (!Acknowledges(ack, unacknowledged[i].address)) continue;
    unacknowledged_bytes -= unacknowledged[i].bytes->size();
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
  for (const AttemptKey& attempt : attempts) lost(attempt, status);
}

ExchangeLink::ExchangeLink(std::string peer, std::string address, const ExchangeLinkLimits& limits,
                           MessagesLost lost)
    : core_(std::make_unique<Core>(std::move(peer), std::move(address), limits, std::move(lost))) {}

ExchangeLink::~ExchangeLink() = default;

absl::Status ExchangeLink::Send(const BoundaryAddress& address, std::span<const std::byte> bytes,
                                const std::function<bool()>& is_cancelled) {
  Message message{address,
                  std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end())};
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
  const absl::Status cancelled = absl::CancelledError("aborted");
  if (!wait_until([&] {
        return core.unacknowledged.empty() ||
               core.unacknowledged_bytes + bytes.size() <= core.limits.unacknowledged_bytes_max;
      })) {
    return cancelled;
  }
  if (!core.stopping && core.losses == losses_before) {
    if (core.unacknowledged.empty()) core.last_progress = Clock::now();
    core.unacknowledged_bytes += bytes.size();
    core.unacknowledged.push_back(std::move(message));
    core.changed.notify_all();
    if (!wait_until([&] { return core.connected; })) return cancelled;
  }
  if (core.stopping) return absl::CancelledError("the link is closed");
  return core.losses == losses_before ? absl::OkStatus() : core.last_loss;
}

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
