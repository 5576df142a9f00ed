// The state exchange of one worker: its own mailbox for what comes in, and for what goes out its
// own mailbox, another one of this process, or a link, whichever the target's address says.
#ifndef DELTAFILL_WORKER_EXCHANGE_WORKER_EXCHANGE_H_
#define DELTAFILL_WORKER_EXCHANGE_WORKER_EXCHANGE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/exchange/boundary_exchange.h"
#include "worker/exchange/exchange_link.h"
#include "worker/exchange/mailbox.h"
#include "worker/exchange/mailbox_registry.h"
#include "worker/model/buffer_pool.h"

namespace deltafill::worker {

// How states leave and reach this process.
struct WorkerExchangeOptions {
  ExchangeLinkLimits limits;
  MessagesLost lost;
  std::shared_ptr<DeviceTransport> transport;        // of the mailbox's device; may be nullptr
  std::function<void(const std::string& line)> log;  // of links; may be empty
};

// Thread-safe.
class WorkerExchange : public BoundaryExchange {
 public:
  // registry may be nullptr: then targets without an address cannot be reached, but for the worker
  // itself. Views in device memory must be of the mailbox's device.
  WorkerExchange(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<MailboxRegistry> registry,
                 WorkerExchangeOptions options);
  WorkerExchange(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<MailboxRegistry> registry,
                 const ExchangeLinkLimits& limits, MessagesLost lost)
      : WorkerExchange(std::move(mailbox), std::move(registry),
                       WorkerExchangeOptions{limits, std::move(lost), nullptr, nullptr}) {}
  ~WorkerExchange() override;

  // The number the coordinator knows this worker by; registers the mailbox under it.
  void SetWorker(uint32_t worker);

  absl::Status Reserve(const AttemptKey& attempt, uint32_t range) override;
  absl::Status Publish(const BoundaryAddress& address, StateView view,
                       std::span<const ExchangeTarget> targets) override;
  absl::StatusOr<ReceivedState> Await(const BoundaryAddress& address) override;
  void Abort(const AttemptKey& attempt) override;
  void AbortAll() override;
  void Release(const AttemptKey& attempt, uint32_t range) override;

  // Waits until peers have acknowledged everything; false if that took longer or one is lost.
  bool Flush(std::chrono::milliseconds timeout);

  // What has gone to each peer since its last such line, to the log.
  void LogTraffic();

 private:
  std::shared_ptr<ExchangeLink> Link(const ExchangeTarget& target);
  std::vector<std::shared_ptr<ExchangeLink>> Links();
  // nullptr if it is not in this process; the worker itself always is.
  std::shared_ptr<Mailbox> FindMailbox(uint32_t worker);
  bool IsSelf(uint32_t worker);
  // A copy that outlives Publish; complete when it returns.
  absl::StatusOr<SharedState> Keep(const StateView& view, bool on_host);
  // To host memory, or the receiver's device; complete when it returns.
  absl::Status Copy(const StateView& from, std::byte* to, bool to_host);

  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<MailboxRegistry> registry_;
  const WorkerExchangeOptions options_;

  BufferPool host_buffers_;  // page-locked; used with a device only

  std::mutex copy_mutex_;
  std::unique_ptr<kernels::Operators> copy_lane_;  // guarded by copy_mutex_; made when needed

  std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<uint32_t> worker_;
  std::map<std::string, std::shared_ptr<ExchangeLink>> links_;  // by address
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_WORKER_EXCHANGE_H_
