// The receiving side of the state exchange: boundary states that have arrived at one worker and not
// been taken yet. Transports deliver into it, the prefill lane takes out of it.
#ifndef DELTAFILL_WORKER_EXCHANGE_MAILBOX_H_
#define DELTAFILL_WORKER_EXCHANGE_MAILBOX_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/exchange/boundary_exchange.h"
#include "worker/model/buffer_pool.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

struct MailboxLimits {
  // Messages may overtake the command that reserves their range. Past this many bytes of them the
  // attempt of the oldest prompt among them is given up: its reservation fails with
  // RESOURCE_EXHAUSTED.
  size_t unreserved_bytes_max = size_t{256} << 20;
  // Latents of one layer in one message.
  size_t latent_bytes_max = size_t{256} << 20;
  // Prompts whose newest attempt is remembered. Forgetting one (least recently seen first) can only
  // let a late message be kept until unreserved_bytes_max pushes it out.
  size_t prompts_max = 4096;
};

// Thread-safe.
class Mailbox {
 public:
  // Messages must be entries of `layout` and have exactly their sizes, or whole rows of latents of
  // one of its attention layers. `backend` is the model's, and outlives the messages;
  // nullptr: one that uses the host's memory.
  explicit Mailbox(const StateLayout& layout, const MailboxLimits& limits = {},
                   std::shared_ptr<kernels::Backend> backend = nullptr);

  // The model's backend, if it has memory of its own; else nullptr.
  kernels::Backend* device() const { return device_.get(); }

  // Memory for a message's bytes, to be filled and delivered: of the backend if it has its own and
  // `on_host` does not say otherwise, else of the host. RESOURCE_EXHAUSTED with the sizes.
  absl::StatusOr<ReceivedState> NewRoom(size_t bytes, bool on_host) const;

  // INVALID_ARGUMENT naming layer and kind if the model has no such entry, or if its messages have
  // another size.
  absl::Status CheckMessage(uint32_t layer, PartKind kind, uint64_t bytes) const;

  // As in BoundaryExchange. Reserve: RESOURCE_EXHAUSTED as said at unreserved_bytes_max.
  absl::Status Reserve(const AttemptKey& attempt, uint32_t range);
  absl::StatusOr<ReceivedState> Await(const BoundaryAddress& address);
  void Abort(const AttemptKey& attempt);
  void AbortAll();
  void Release(const AttemptKey& attempt, uint32_t range);

  // Takes a message in. OK also if it is dropped: of an old or aborted attempt, of a released
  // range, or a repetition. INVALID_ARGUMENT as CheckMessage.
  absl::Status Deliver(const BoundaryAddress& address, ReceivedState received);

  // True once the attempt was aborted or a newer one of its prompt is known; for senders.
  bool IsAborted(const AttemptKey& attempt) const;
  // How often AbortAll was called.
  uint64_t generation() const;

  size_t bytes_held() const;
  size_t prompts_remembered() const;

 private:
  using EntryKey = std::pair<uint32_t, PartKind>;  // layer, kind

  // What has arrived for one range.
  struct Box {
    bool reserved = false;
    size_t bytes = 0;
    std::map<EntryKey, std::optional<ReceivedState>> states;  // nullopt: taken
  };

  struct BoxKey {
    AttemptKey attempt;
    uint32_t range = 0;
    friend auto operator<=>(const BoxKey&, const BoxKey&) = default;
  };

  // What is remembered of a prompt after its boxes are gone.
  struct PromptMark {
    uint32_t newest_attempt = 0;
    bool aborted = false;       // newest_attempt
    bool overflowed = false;    // aborted because its early messages found no room
    uint64_t released_end = 0;  // ranges of newest_attempt below this have ended
    std::list<uint64_t>::iterator seen;
  };

  absl::Status CheckEntry(uint32_t layer, PartKind kind) const;
  // All with mutex_ held.
  PromptMark& Mark(uint64_t prompt);
  bool AdvanceTo(PromptMark& mark, const AttemptKey& attempt);
  void DropBoxes(uint64_t prompt, uint32_t attempt_last);
  std::map<BoxKey, Box>::iterator DropBox(std::map<BoxKey, Box>::iterator box);
  void MakeRoom(size_t bytes);
  absl::Status Gone(const AttemptKey& attempt) const;

  const MailboxLimits limits_;
  const std::shared_ptr<kernels::Backend> device_;  // senders may hold the mailbox longest
  const std::unique_ptr<BufferPool> device_rooms_;  // with device_
  std::map<EntryKey, size_t> expected_bytes_;       // immutable; of latents: of one row

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<BoxKey, Box> boxes_;
  std::unordered_map<uint64_t, PromptMark> marks_;
  std::list<uint64_t> seen_;  // prompts of marks_, least recently seen first
  size_t bytes_held_ = 0;
  size_t unreserved_bytes_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_MAILBOX_H_
