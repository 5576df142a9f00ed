#include "worker/runtime/decode_start.h"

#include <optional>
#include <utility>

#include "worker/model/status_steps.h"
#include "worker/runtime/command_checks.h"
#include "worker/runtime/latent_pieces.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRoomPause{2};
constexpr std::chrono::milliseconds kLongPause{10'000};  // nobody waits for room

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeStart>> DecodeStart::Create(const LaneParts& parts,
                                                                 size_t sequences_max,
                                                                 StatePool* states,
                                                                 BufferPool* host_buffers,
                                                                 Ready ready) {
  std::unique_ptr<DecodeStart> start(
      new DecodeStart(parts, sequences_max, states, host_buffers, std::move(ready)));
  DELTAFILL_TRY(parts.model->backend().NewOperators(1, &start->copies_));
  start->thread_ = std::thread([start = start.get()] { start->Main(); });
  return start;
}

DecodeStart::DecodeStart(const LaneParts& parts, size_t sequences_max, StatePool* states,
                         BufferPool* host_buffers, Ready ready)
    : parts_(parts),
      layout_(parts.model->state_layout()),
      sequences_max_(sequences_max),
      states_(states),
      host_buffers_(parts.model->backend().is_host_memory() ? nullptr : host_buffers),
      ready_(std::move(ready)) {}

DecodeStart::~DecodeStart() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  queue_.CloseAndClear();
  if (thread_.joinable()) thread_.join();
}

bool DecodeStart::Push(std::unique_ptr<DecodeSequence> sequence) {
  return queue_.Push(std::move(sequence));
}

void DecodeStart::Ended(size_t count) {
  if (count == 0) return;
  {
    std::lock_guard lock(mutex_);
    sequences_ -= count;
  }
  changed_.notify_all();
}

// False at the limit, and when it is to end.
bool DecodeStart::WaitForTurn(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return stopping_ || sequences_ < sequences_max_; });
  if (stopping_ || sequences_ >= sequences_max_) return false;
  ++sequences_;
  return true;
}

void DecodeStart::Main() {
  Sequences waiting;  // for room; they have their turn
  std::unique_ptr<DecodeSequence> next;
  while (!queue_.closed()) {
    const std::chrono::milliseconds pause = waiting.empty() ? kLongPause : kRoomPause;
    if (next == nullptr) {
      std::optional<std::unique_ptr<DecodeSequence>> pushed = queue_.PopUntil(Clock::now() + pause);
      if (pushed.has_value()) next = *std::move(pushed);
    }
    if (next != nullptr && WaitForTurn(pause)) waiting.push_back(std::move(next));
    while (StartOne(waiting)) {
    }
  }
}

// The first one that has room, or cannot have any. False if there is none.
bool DecodeStart::StartOne(Sequences& waiting) {
  for (auto sequence = waiting.begin(); sequence != waiting.end(); ++sequence) {
    DecodeSequence& starting = **sequence;
    if (!starting.flag->aborted()) {
      const absl::StatusOr<bool> room = TakeRoom(starting);
      if (room.ok() && !*room) continue;
      const absl::Status status = room.ok() ? Start(starting) : room.status();
      if (!status.ok()) {
        starting.phase = DecodeSequence::Phase::kDone;
        parts_.attempts->Fail(starting.command.attempt, status, absl::IsDataLoss(status));
      }
    }
    ready_(std::move(*sequence));
    waiting.erase(sequence);
    return true;
  }
  return false;
}

// False: others have to give some back first.
absl::StatusOr<bool> DecodeStart::TakeRoom(DecodeSequence& sequence) {
  if (layout_.latents.layers.empty()) return true;
  const uint64_t tokens = sequence.command.first_token + sequence.command.tokens.size();
  if (sequence.latents == nullptr) {
    sequence.latents = parts_.latents->pool().NewSequence();
    sequence.asked = Clock::now();
  }
  const absl::Status claimed = sequence.latents->Claim(tokens);
  if (absl::IsResourceExhausted(claimed) && tokens <= parts_.latents->pool().tokens_max() &&
      Clock::now() - sequence.asked < kLatentRoomWait) {
    return false;
  }
  DELTAFILL_TRY(claimed);
  return true;
}

absl::Status DecodeStart::Start(DecodeSequence& sequence) {
  const DecodeCommand& command = sequence.command;
  DELTAFILL_TRY(
      CheckTokens(command.first_token, command.tokens, parts_.model->config().vocab_size));
  if (command.source.from == StateSource::From::kPeer) {
    return absl::InvalidArgumentError("source: decoding starts from a stored or zero state");
  }
  DELTAFILL_TRY_ASSIGN(current, states_->Acquire(*sequence.flag));
  sequence.current.buffer = std::move(current);
  if (command.save_state) {
    DELTAFILL_TRY_ASSIGN(kept, states_->Acquire(*sequence.flag));
    sequence.kept.buffer = std::move(kept);
  }
  if (sequence.latents != nullptr) {
    DELTAFILL_TRY(sequence.latents->Reserve(command.first_token + command.tokens.size()));
  }
  return command.source.from == StateSource::From::kZero ? absl::OkStatus() : Load(sequence);
}

absl::Status DecodeStart::Load(DecodeSequence& sequence) {
  const DecodeCommand& command = sequence.command;
  sequence.current.is_zero = false;
  DELTAFILL_TRY(LoadState(command, sequence.current.buffer->bytes()));
  if (sequence.latents == nullptr) return absl::OkStatus();
  return LoadLatents(*parts_.store, command.stored_latents, layout_.latents, command.first_token,
                     *copies_, host_buffers_, sequence.latents->cache());
}

absl::Status DecodeStart::LoadState(const DecodeCommand& command, std::byte* state) {
  PooledBuffer staged;
  std::byte* to = state;
  if (host_buffers_ != nullptr) {
    DELTAFILL_TRY_ASSIGN(buffer, host_buffers_->Acquire(layout_.bytes));
    staged = std::move(buffer);
    to = staged.get();
  }
  DELTAFILL_TRY(
      LoadPrefixState(*parts_.store, command.source.parts, layout_, command.first_token, to));
  if (staged == nullptr) return absl::OkStatus();
  absl::Status status = FromOperator(copies_->CopyFromHost(state, staged.get(), layout_.bytes));
  // Also after an error: `staged` is given back now.
  status.Update(FromOperator(copies_->Synchronize()));
  return status;
}

}  // namespace deltafill::worker
