// Whose turn it is on the decode lane: sequences wait for room, advance by chunks and share steps.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "worker/model/status_steps.h"
#include "worker/runtime/decode_lane.h"

namespace deltafill::worker {

namespace {

constexpr std::chrono::milliseconds kRoomPause{2};

}  // namespace

using Phase = DecodeSequence::Phase;

void DecodeLane::Main() {
  for (;;) {
    if (active_.empty()) {
      std::optional<std::unique_ptr<DecodeSequence>> first = queue_.Pop();
      if (!first.has_value()) return;
      active_.push_back(*std::move(first));
    }
    AdmitWaiting();
    if (stopping_.load(std::memory_order_acquire)) return;
    const bool advanced = AdvanceOne();
    const bool stepped = StepBatch();
    RemoveEnded();
    // Everybody waits for room for latents.
    if (!advanced && !stepped && !active_.empty()) std::this_thread::sleep_for(kRoomPause);
  }
}

// One chunk of one prompt, or of an answer that is saved, between two steps of the batch.
bool DecodeLane::AdvanceOne() {
  for (std::unique_ptr<DecodeSequence>& sequence : active_) {
    if (sequence->phase != Phase::kPrompt && sequence->phase != Phase::kSaving) continue;
    if (sequence->flag->aborted()) continue;
    const absl::StatusOr<bool> room = TakeRoom(*sequence);
    if (room.ok() && !*room) continue;
    absl::Status status = room.ok() ? Advance(*sequence) : room.status();
    if (!status.ok()) Fail(*sequence, status);
    return true;
  }
  return false;
}

// False: others have to give some back first.
absl::StatusOr<bool> DecodeLane::TakeRoom(DecodeSequence& sequence) {
  if (sequence.has_room || layout_.latents.layers.empty()) return true;
  const uint64_t tokens = sequence.command.first_token + sequence.command.tokens.size();
  if (sequence.latents == nullptr) {
    sequence.latents = parts_.latents->pool().NewSequence();
    sequence.asked = std::chrono::steady_clock::now();
  }
  const absl::Status claimed = sequence.latents->Claim(tokens);
  if (absl::IsResourceExhausted(claimed) && tokens <= parts_.latents->pool().tokens_max() &&
      std::chrono::steady_clock::now() - sequence.asked < kLatentRoomWait) {
    return false;
  }
  DELTAFILL_TRY(claimed);
  sequence.has_room = true;
  return true;
}

void DecodeLane::AdmitWaiting() {
  while (active_.size() < static_cast<size_t>(options_.batch_max)) {
    std::optional<std::unique_ptr<DecodeSequence>> next = queue_.TryPop();
    if (!next.has_value()) return;
    active_.push_back(*std::move(next));
  }
}

void DecodeLane::RemoveEnded() {
  std::erase_if(active_, [this](const std::unique_ptr<DecodeSequence>& sequence) {
    const bool ended = sequence->phase == Phase::kDone || sequence->flag->aborted();
    if (ended) pending_.fetch_sub(1, std::memory_order_acq_rel);
    return ended;
  });
}

}  // namespace deltafill::worker
