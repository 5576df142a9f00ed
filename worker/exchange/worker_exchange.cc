#include "worker/exchange/worker_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace deltafill::worker {

WorkerExchange::WorkerExchange(std::shared_ptr<Mailbox> mailbox,
                               std::shared_ptr<MailboxRegistry> registry,
                               const ExchangeLinkLimits& limits, MessagesLost lost)
    : mailbox_(std::move(mailbox)),
      registry_(std::move(registry)),
      limits_(limits),
      lost_(std::move(lost)) {}

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

absl::Status WorkerExchange::Publish(const BoundaryAddress& address, StateView view,
                                     std::span<const ExchangeTarget> targets) {
  if (!view.on_host) return absl::UnimplementedError("exchange: a state in device memory");
  const std::span<const std::byte> bytes(view.data, view.bytes);
  const uint64_t generation = mailbox_->generation();
  for (const ExchangeTarget& target : targets) {
    bool is_self;
    {
      std::lock_guard lock(mutex_);
      is_self = worker_.has_value() && *worker_ == target.worker;
    }
    absl::Status status;
    if (!is_self && !target.address.empty()) {
      status = Link(target)->Send(address, bytes, [&] {
        return mailbox_->IsAborted(address.attempt) || mailbox_->generation() != generation;
      });
    } else {
      std::shared_ptr<Mailbox> mailbox = mailbox_;
      if (!is_self) mailbox = registry_ == nullptr ? nullptr : registry_->Find(target.worker);
      if (mailbox == nullptr) {
        return absl::UnavailableError(
            absl::StrCat("worker ", target.worker, " is not in this process and has no address"));
      }
      status = mailbox->Deliver(address, std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
    if (!status.ok()) return status;
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
  std::vector<std::shared_ptr<ExchangeLink>> links;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, link] : links_) links.push_back(link);
  }
  bool flushed = true;
  for (const std::shared_ptr<ExchangeLink>& link : links) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    flushed = link->Flush(std::max(left, std::chrono::milliseconds(0))) && flushed;
  }
  return flushed;
}

std::shared_ptr<ExchangeLink> WorkerExchange::Link(const ExchangeTarget& target) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<ExchangeLink>& link = links_[target.address];
  if (link == nullptr) {
    link = std::make_shared<ExchangeLink>(
        absl::StrCat("worker ", target.worker, " at ", target.address), target.address, limits_,
        lost_);
  }
  return link;
}

}  // namespace deltafill::worker
