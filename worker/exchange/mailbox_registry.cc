#include "worker/exchange/mailbox_registry.h"

#include <utility>

namespace deltafill::worker {

void MailboxRegistry::Register(uint32_t worker, std::shared_ptr<Mailbox> mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_[worker] = std::move(mailbox);
}

void MailboxRegistry::Unregister(uint32_t worker, const std::shared_ptr<Mailbox>& mailbox) {
  std::lock_guard lock(mutex_);
  const auto found = mailboxes_.find(worker);
  if (found != mailboxes_.end() && found->second == mailbox) mailboxes_.erase(found);
}

std::shared_ptr<Mailbox> MailboxRegistry::Find(uint32_t worker) const {
  std::lock_guard lock(mutex_);
  const auto found = mailboxes_.find(worker);
  return found == mailboxes_.end() ? nullptr : found->second;
}

}  // namespace deltafill::worker
