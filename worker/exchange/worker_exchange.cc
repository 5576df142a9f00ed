#include "worker/exchange/worker_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

WorkerExchange::WorkerExchange(std::shared_ptr<Mailbox> mailbox,
                               std::shared_ptr<MailboxRegistry> registry,
                               WorkerExchangeOptions options)
    : mailbox_(std::move(mailbox)),
      registry_(std::move(registry)),
      options_(std::move(options)),
      host_buffers_(mailbox_->device(), BufferPool::Place::kHost) {}

WorkerExchange::~WorkerExchange() {
  std::map<std::string, std::shared_ptr<ExchangeLink>> links;
  {
    std::lock_guard lock(mutex_);
    links.swap(links_);
  }
  links.clear();  // their last callbacks find a whole object
  if (registry_ != nullptr && worker_.has_value()) registry_->Unregister(*worker_, mailbox_);
}

void WorkerExchange::SetWorker(uint32_t worker) {
  std::lock_guard lock(mutex_);
  if (registry_ != nullptr) {
    if (worker_.has_value() && *worker_ != worker) registry_->Unregister(*worker_, mailbox_);
    registry_->Register(worker, mailbox_);
  }
  worker_ = worker;
}

absl::Status WorkerExchange::Reserve(const AttemptKey& attempt, uint32_t range) {
  return mailbox_->Reserve(attempt, range);
}

bool WorkerExchange::IsSelf(uint32_t worker) {
  std::lock_guard lock(mutex_);
  return worker_.has_value() && *worker_ == worker;
}

std::shared_ptr<Mailbox> WorkerExchange::FindMailbox(uint32_t worker) {
  if (IsSelf(worker)) return mailbox_;
  return registry_ == nullptr ? nullptr : registry_->Find(worker);
}

absl::Status WorkerExchange::Copy(const StateView& from, std::byte* to, bool to_host) {
  if (from.on_host && to_host) {
    std::memcpy(to, from.data, from.bytes);
    return absl::OkStatus();
  }
  if (mailbox_->device() == nullptr) {
    return absl::InternalError("exchange: a state in device memory, but this worker has no device");
  }
  std::lock_guard lock(copy_mutex_);
  if (copy_lane_ == nullptr) DELTAFILL_TRY(mailbox_->device()->NewOperators(1, &copy_lane_));
  if (to_host) {
    DELTAFILL_TRY(copy_lane_->CopyToHost(to, from.data, from.bytes));
  } else if (from.on_host) {
    DELTAFILL_TRY(copy_lane_->CopyFromHost(to, from.data, from.bytes));
  } else {
    DELTAFILL_TRY(copy_lane_->Copy(to, from.data, from.bytes));
  }
  return FromOperator(copy_lane_->Synchronize());
}

absl::StatusOr<SharedState> WorkerExchange::Keep(const StateView& view, bool on_host) {
  if (on_host && !view.on_host) {
    DELTAFILL_TRY_ASSIGN(staged, host_buffers_.Acquire(view.bytes));
    DELTAFILL_TRY(Copy(view, staged.get(), true));
    return std::make_shared<ReceivedState>(staged.get(), view.bytes, true, staged);
  }
  DELTAFILL_TRY_ASSIGN(room, mailbox_->NewRoom(view.bytes, on_host));
  DELTAFILL_TRY(Copy(view, room.data(), room.on_host()));
  return std::make_shared<ReceivedState>(std::move(room));
}

absl::Status WorkerExchange::Publish(const BoundaryAddress& address, StateView view,
                                     std::span<const ExchangeTarget> targets) {
  const uint64_t generation = mailbox_->generation();
  SharedState kept;  // for links
  for (const ExchangeTarget& target : targets) {
    if (!target.address.empty() && !IsSelf(target.worker)) {
      if (kept == nullptr) {
        DELTAFILL_TRY_ASSIGN(copy, Keep(view, view.on_host || options_.transport == nullptr));
        kept = std::move(copy);
      }
      DELTAFILL_TRY(Link(target)->Send(address, kept, [&] {
        return mailbox_->IsAborted(address.attempt) || mailbox_->generation() != generation;
      }));
      continue;
    }
    const std::shared_ptr<Mailbox> mailbox = FindMailbox(target.worker);
    if (mailbox == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("worker ", target.worker, " is not in this process and has no address"));
    }
    DELTAFILL_TRY_ASSIGN(room, mailbox->NewRoom(view.bytes, view.on_host));
    DELTAFILL_TRY(Copy(view, room.data(), room.on_host()));
    DELTAFILL_TRY(mailbox->Deliver(address, std::move(room)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReceivedState> WorkerExchange::Await(const BoundaryAddress& address) {
  return mailbox_->Await(address);
}

void WorkerExchange::Abort(const AttemptKey& attempt) { mailbox_->Abort(attempt); }

void WorkerExchange::AbortAll() { mailbox_->AbortAll(); }

void WorkerExchange::Release(const AttemptKey& attempt, uint32_t range) {
  mailbox_->Release(attempt, range);
}

bool WorkerExchange::Flush(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  bool flushed = true;
  for (const std::shared_ptr<ExchangeLink>& link : Links()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    flushed = link->Flush(std::max(left, std::chrono::milliseconds(0))) && flushed;
  }
  return flushed;
}

void WorkerExchange::LogTraffic() {
  for (const std::shared_ptr<ExchangeLink>& link : Links()) link->LogTraffic();
}

std::vector<std::shared_ptr<ExchangeLink>> WorkerExchange::Links() {
  std::vector<std::shared_ptr<ExchangeLink>> links;
  std::lock_guard lock(mutex_);
  for (const auto& [address, link] : links_) links.push_back(link);
  return links;
}

std::shared_ptr<ExchangeLink> WorkerExchange::Link(const ExchangeTarget& target) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<ExchangeLink>& link = links_[target.address];
  if (link == nullptr) {
    const auto copy_to_host = [this](const ReceivedState& state) {
      return Keep({state.data(), state.bytes(), state.on_host()}, true);
    };
    link = std::make_shared<ExchangeLink>(
        absl::StrCat("worker ", target.worker, " at ", target.address), target.address,
        ExchangeLinkOptions{
            options_.limits, options_.lost, {options_.transport, copy_to_host}, options_.log});
  }
  return link;
}

}  // namespace deltafill::worker
