#include "worker/runtime/attempt_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace deltafill::worker {

absl::Status DeviceStatus(kernels::Backend& backend) {
  const kernels::Status device = backend.CheckDevice();
  if (device.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("its device has failed: ", device.message()));
}

AttemptFlagRef AttemptBook::Enter(const AttemptKey& attempt) {
  std::lock_guard lock(mutex_);
  ForgetUnused();
  std::shared_ptr<AttemptFlag>& flag = flags_[attempt];
  if (flag == nullptr) {
    flag = std::make_shared<AttemptFlag>();
    const auto tombstone = tombstones_.find(attempt.prompt);
    if (tombstone != tombstones_.end() && attempt.attempt <= tombstone->second) {
      flag->aborted_.store(true, std::memory_order_release);
    }
  }
  return flag;
}

// Flags that nobody but the book holds belong to attempts without work here.
void AttemptBook::ForgetUnused() {
  if (flags_.size() < 2 * flags_after_cleaning_ + 64) return;
  std::erase_if(flags_, [](const auto& entry) { return entry.second.use_count() == 1; });
  flags_after_cleaning_ = flags_.size();
}

bool AttemptBook::SetFlags(const AttemptKey& attempt) {
  std::lock_guard lock(mutex_);
  for (auto flag = flags_.lower_bound(AttemptKey{attempt.prompt, 0});
       flag != flags_.end() && flag->first <= attempt; ++flag) {
    flag->second->aborted_.store(true, std::memory_order_release);
  }
  const auto [tombstone, is_new] = tombstones_.try_emplace(attempt.prompt, attempt.attempt);
  if (!is_new) {
    if (attempt.attempt <= tombstone->second) return false;
    tombstone->second = attempt.attempt;
    return true;
  }
  tombstone_order_.push_back(attempt.prompt);
  if (tombstone_order_.size() > kTombstonesMax) {
    tombstones_.erase(tombstone_order_.front());
    tombstone_order_.pop_front();
  }
  return true;
}

void AttemptBook::Abort(const AttemptKey& attempt) {
  SetFlags(attempt);
  latents_->Drop(attempt);
  exchange_->Abort(attempt);
}

void AttemptBook::AbortAll() {
  {
    std::lock_guard lock(mutex_);
    for (auto& [attempt, flag] : flags_) flag->aborted_.store(true, std::memory_order_release);
    flags_.clear();
    flags_after_cleaning_ = 0;
    tombstones_.clear();
    tombstone_order_.clear();
  }
  latents_->DropAll();
  exchange_->AbortAll();
}

void AttemptBook::Fail(const AttemptKey& attempt, const absl::Status& status,
                       bool stored_state_lost, bool peer_lost) {
  if (absl::IsCancelled(status)) return;
  if (!SetFlags(attempt)) return;
  latents_->Drop(attempt);
  exchange_->Abort(attempt);
  if (absl::Status device = DeviceStatus(*backend_); !device.ok()) {
    sink_->Emit(WorkerFailed{device});
    return;
  }
  sink_->Emit(AttemptFailed{attempt, status, stored_state_lost, peer_lost});
}

}  // namespace deltafill::worker
