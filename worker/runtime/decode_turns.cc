// Whose turn it is on the decode lane: sequences advance by chunks and share steps.
#include <algorithm>
#include <optional>
#include <utility>

#include "worker/runtime/decode_lane.h"

namespace deltafill::worker {

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
    AdvanceOne();
    StepBatch();
    RemoveEnded();
  }
}

// One chunk of one prompt, or of an answer that is saved, between two steps of the batch.
void DecodeLane::AdvanceOne() {
  for (std::unique_ptr<DecodeSequence>& sequence : active_) {
    if (sequence->phase != Phase::kPrompt && sequence->phase != Phase::kSaving) continue;
    if (sequence->flag->aborted()) continue;
    const absl::Status status = Advance(*sequence);
    if (!status.ok()) Fail(*sequence, status);
    return;
  }
}

void DecodeLane::AdmitWaiting() {
  while (active_.size() < static_cast<size_t>(options_.batch_max)) {
    std::optional<std::unique_ptr<DecodeSequence>> next = queue_.TryPop();
    if (!next.has_value()) return;
    active_.push_back(*std::move(next));
  }
}

void DecodeLane::RemoveEnded() {
  const size_t ended = std::erase_if(active_, [](const std::unique_ptr<DecodeSequence>& sequence) {
    return sequence->phase == Phase::kDone || sequence->flag->aborted();
  });
  pending_.fetch_sub(static_cast<int64_t>(ended), std::memory_order_acq_rel);
  start_->Ended(ended);
}

}  // namespace deltafill::worker
