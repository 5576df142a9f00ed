// The receiving side of an exchange between processes: serves BoundaryExchangeService into a
// mailbox.
#ifndef DELTAFILL_WORKER_EXCHANGE_EXCHANGE_SERVER_H_
#define DELTAFILL_WORKER_EXCHANGE_EXCHANGE_SERVER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/exchange/device_link.h"
#include "worker/exchange/mailbox.h"

namespace deltafill::worker {

struct ExchangeServerOptions {
  std::shared_ptr<DeviceTransport> transport;  // of the mailbox's device; nullptr: no device links
  std::chrono::milliseconds device_open_timeout{20'000};
  // Opened and failed device links, and each stream's traffic when it ends. May be empty; from the
  // streams' threads and LogTraffic's.
  std::function<void(const std::string& line)> log;
};

// Owns its port until destroyed; destruction ends the streams of all peers.
class ExchangeServer {
 public:
  // listen: "host:port", port 0 for any free one. UNAVAILABLE naming the address if it cannot be
  // had.
  static absl::StatusOr<std::unique_ptr<ExchangeServer>> Start(const std::string& listen,
                                                               std::shared_ptr<Mailbox> mailbox,
                                                               ExchangeServerOptions options = {});
  ~ExchangeServer();

  int port() const;

  // What has come in on every stream since its last such line, to the log.
  void LogTraffic();

 private:
  struct Core;
  explicit ExchangeServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_EXCHANGE_SERVER_H_
