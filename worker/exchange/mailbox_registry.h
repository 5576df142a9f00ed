// The in-process transport: the mailboxes of the workers that live in this process, by number.
#ifndef DELTAFILL_WORKER_EXCHANGE_MAILBOX_REGISTRY_H_
#define DELTAFILL_WORKER_EXCHANGE_MAILBOX_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "worker/exchange/mailbox.h"

namespace deltafill::worker {

// Thread-safe. One for all workers of one coordinator: worker numbers are unique only there.
class MailboxRegistry {
 public:
  // Replaces what the number stood for.
  void Register(uint32_t worker, std::shared_ptr<Mailbox> mailbox);

  // Does nothing if the number stands for another mailbox by now.
  void Unregister(uint32_t worker, const std::shared_ptr<Mailbox>& mailbox);

  // nullptr if no worker of this process has the number.
  std::shared_ptr<Mailbox> Find(uint32_t worker) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, std::shared_ptr<Mailbox>> mailboxes_;  // guarded by mutex_
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_MAILBOX_REGISTRY_H_
