#include "worker/exchange/mailbox.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace deltafill::worker {
namespace {

std::string Describe(const AttemptKey& attempt) {
  return absl::StrCat("prompt ", attempt.prompt, ", attempt ", attempt.attempt);
}

}  // namespace

Mailbox::Mailbox(const StateLayout& layout, const MailboxLimits& limits,
                 std::shared_ptr<kernels::Backend> backend)
    : limits_(limits),
      device_(backend != nullptr && !backend->is_host_memory() ? std::move(backend) : nullptr),
      device_rooms_(device_ == nullptr ? nullptr
                                       : std::make_unique<BufferPool>(
                                             device_.get(), BufferPool::Place::kBackend)) {
  for (const StateEntry& entry : layout.entries) {
    expected_bytes_[{entry.layer, entry.kind}] = entry.bytes;
  }
  for (uint32_t layer : layout.latents.layers) {
    expected_bytes_[{layer, PartKind::kLatent}] = layout.latents.RowBytes();
  }
}

absl::StatusOr<ReceivedState> Mailbox::NewRoom(size_t bytes, bool on_host) const {
  if (on_host || device_rooms_ == nullptr) return ReceivedState(std::vector<std::byte>(bytes));
  absl::StatusOr<PooledBuffer> room = device_rooms_->Acquire(bytes);
  if (!room.ok()) return room.status();
  std::byte* const data = room->get();
  return ReceivedState(data, bytes, false, *std::move(room));
}

absl::Status Mailbox::CheckEntry(uint32_t layer, PartKind kind) const {
  if (expected_bytes_.contains({layer, kind})) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("boundary state of layer ", layer, ", kind ",
                                                 static_cast<int>(kind),
                                                 ": the model has no such piece"));
}

absl::Status Mailbox::CheckMessage(uint32_t layer, PartKind kind, uint64_t bytes) const {
  if (absl::Status status = CheckEntry(layer, kind); !status.ok()) return status;
  const size_t expected = expected_bytes_.at({layer, kind});
  if (kind != PartKind::kLatent) {
    if (bytes == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("boundary state of layer ", layer, ": has ",
                                                   bytes, " bytes, must have ", expected));
  }
  if (bytes > 0 && bytes % expected == 0 && bytes <= limits_.latent_bytes_max) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("latents of layer ", layer, ": have ", bytes,
                                                 " bytes, must be whole rows of ", expected,
                                                 " bytes and at most ", limits_.latent_bytes_max));
}

Mailbox::PromptMark& Mailbox::Mark(uint64_t prompt) {
  const auto found = marks_.find(prompt);
  if (found != marks_.end()) {
    seen_.splice(seen_.end(), seen_, found->second.seen);
    return found->second;
  }
  // Prompts that still have boxes are passed over; there are few of them, so this ends soon.
  for (auto oldest = seen_.begin();
       marks_.size() >= limits_.prompts_max && oldest != seen_.end();) {
    const auto box = boxes_.lower_bound(BoxKey{{*oldest, 0}, 0});
    if (box != boxes_.end() && box->first.attempt.prompt == *oldest) {
      ++oldest;
      continue;
    }
    marks_.erase(*oldest);
    oldest = seen_.erase(oldest);
  }
  PromptMark& mark = marks_[prompt];
  mark.seen = seen_.insert(seen_.end(), prompt);
  return mark;
}

// False if the attempt is dead. A newer attempt than any before ends the older ones.
bool Mailbox::AdvanceTo(PromptMark& mark, const AttemptKey& attempt) {
  if (attempt.attempt < mark.newest_attempt) return false;
  if (attempt.attempt > mark.newest_attempt) {
    mark.newest_attempt = attempt.attempt;
    mark.aborted = false;
    mark.overflowed = false;
    mark.released_end = 0;
    if (attempt.attempt > 0) DropBoxes(attempt.prompt, attempt.attempt - 1);
  }
  return !mark.aborted;
}

std::map<Mailbox::BoxKey, Mailbox::Box>::iterator Mailbox::DropBox(
    std::map<BoxKey, Box>::iterator box) {
  bytes_held_ -= box->second.bytes;
  if (!box->second.reserved) unreserved_bytes_ -= box->second.bytes;
  return boxes_.erase(box);
}

void Mailbox::DropBoxes(uint64_t prompt, uint32_t attempt_last) {
  auto box = boxes_.lower_bound(BoxKey{{prompt, 0}, 0});
  while (box != boxes_.end() && box->first.attempt.prompt == prompt &&
         box->first.attempt.attempt <= attempt_last) {
    box = DropBox(box);
  }
  changed_.notify_all();
}

void Mailbox::MakeRoom(size_t bytes) {
  auto box = boxes_.begin();  // ascending prompts: the oldest come first
  while (unreserved_bytes_ + bytes > limits_.unreserved_bytes_max && box != boxes_.end()) {
    if (box->second.reserved || box->second.bytes == 0) {
      ++box;
      continue;
    }
    const AttemptKey attempt = box->first.attempt;
    PromptMark& mark = Mark(attempt.prompt);
    mark.aborted = true;
    mark.overflowed = true;
    DropBoxes(attempt.prompt, attempt.attempt);
    box = boxes_.upper_bound(BoxKey{attempt, std::numeric_limits<uint32_t>::max()});
  }
}

absl::Status Mailbox::Gone(const AttemptKey& attempt) const {
  const auto mark = marks_.find(attempt.prompt);
  if (mark != marks_.end() && mark->second.overflowed &&
      mark->second.newest_attempt == attempt.attempt) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Describe(attempt), ": boundary states that came before their range's command ",
                     "passed the limit of ", limits_.unreserved_bytes_max, " bytes"));
  }
  return absl::CancelledError(absl::StrCat(Describe(attempt), " was aborted"));
}

absl::Status Mailbox::Reserve(const AttemptKey& attempt, uint32_t range) {
  std::lock_guard lock(mutex_);
  PromptMark& mark = Mark(attempt.prompt);
  if (!AdvanceTo(mark, attempt)) return Gone(attempt);
  Box& box = boxes_[{attempt, range}];
  if (!box.reserved) {
    box.reserved = true;
    unreserved_bytes_ -= box.bytes;
  }
  return absl::OkStatus();
}

absl::Status Mailbox::Deliver(const BoundaryAddress& address, ReceivedState received) {
  const size_t bytes = received.bytes();
  if (absl::Status status = CheckMessage(address.layer, address.kind, bytes); !status.ok()) {
    return status;
  }
  std::lock_guard lock(mutex_);
  PromptMark& mark = Mark(address.attempt.prompt);
  if (!AdvanceTo(mark, address.attempt)) return absl::OkStatus();
  const BoxKey key{address.attempt, address.range};
  const bool known = boxes_.contains(key);
  if (!known && address.range < mark.released_end) return absl::OkStatus();
  if (!known || !boxes_[key].reserved) {
    MakeRoom(bytes);
    if (mark.aborted) return absl::OkStatus();  // it was itself the oldest
  }
  Box& box = boxes_[key];
  const auto [state, is_new] = box.states.try_emplace(EntryKey{address.layer, address.kind});
  if (!is_new) return absl::OkStatus();
  box.bytes += bytes;
  bytes_held_ += bytes;
  if (!box.reserved) unreserved_bytes_ += bytes;
  state->second = std::move(received);
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<ReceivedState> Mailbox::Await(const BoundaryAddress& address) {
  if (absl::Status status = CheckEntry(address.layer, address.kind); !status.ok()) return status;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto box = boxes_.find(BoxKey{address.attempt, address.range});
    if (box == boxes_.end() || !box->second.reserved) return Gone(address.attempt);
    const auto state = box->second.states.find(EntryKey{address.layer, address.kind});
    if (state != box->second.states.end()) {
      if (!state->second.has_value()) {
        return absl::FailedPreconditionError(absl::StrCat(Describe(address.attempt), ", range ",
                                                          address.range, ", layer ", address.layer,
                                                          ": the boundary state was taken before"));
      }
      ReceivedState received = std::move(*state->second);
      state->second.reset();
      box->second.bytes -= received.bytes();
      bytes_held_ -= received.bytes();
      return received;
    }
    changed_.wait(lock);
  }
}

void Mailbox::Abort(const AttemptKey& attempt) {
  std::lock_guard lock(mutex_);
  PromptMark& mark = Mark(attempt.prompt);
  if (attempt.attempt >= mark.newest_attempt) {
    mark.newest_attempt = attempt.attempt;
    mark.aborted = true;
    mark.overflowed = false;
  }
  DropBoxes(attempt.prompt, attempt.attempt);
}

void Mailbox::AbortAll() {
  std::lock_guard lock(mutex_);
  boxes_.clear();
  marks_.clear();
  seen_.clear();
  bytes_held_ = 0;
  unreserved_bytes_ = 0;
  ++generation_;
  changed_.notify_all();
}

void Mailbox::Release(const AttemptKey& attempt, uint32_t range) {
  std::lock_guard lock(mutex_);
  const auto box = boxes_.find(BoxKey{attempt, range});
  if (box == boxes_.end()) return;
  DropBox(box);
  PromptMark& mark = Mark(attempt.prompt);
  if (mark.newest_attempt == attempt.attempt && mark.released_end <= range) {
    mark.released_end = uint64_t{range} + 1;
  }
  changed_.notify_all();
}

bool Mailbox::IsAborted(const AttemptKey& attempt) const {
  std::lock_guard lock(mutex_);
  const auto mark = marks_.find(attempt.prompt);
  if (mark == marks_.end()) return false;
  return attempt.attempt < mark->second.newest_attempt ||
         (attempt.attempt == mark->second.newest_attempt && mark->second.aborted);
}

uint64_t Mailbox::generation() const {
  std::lock_guard lock(mutex_);
  return generation_;
}

size_t Mailbox::bytes_held() const {
  std::lock_guard lock(mutex_);
  return bytes_held_;
}

size_t Mailbox::prompts_remembered() const {
  std::lock_guard lock(mutex_);
  return marks_.size();
}

}  // namespace deltafill::worker
