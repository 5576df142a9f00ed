// The receiving side of the gRPC transport: serves BoundaryExchangeService into a mailbox.
#ifndef DELTAFILL_WORKER_EXCHANGE_EXCHANGE_SERVER_H_
#define DELTAFILL_WORKER_EXCHANGE_EXCHANGE_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/exchange/mailbox.h"

namespace deltafill::worker {

// Owns its port until destroyed; destruction ends the streams of all peers.
class ExchangeServer {
 public:
  // listen: "host:port", port 0 for any free one. UNAVAILABLE naming the address if it cannot be
  // had.
  static absl::StatusOr<std::unique_ptr<ExchangeServer>> Start(const std::string& listen,
                                                               std::shared_ptr<Mailbox> mailbox);
  ~ExchangeServer();

  int port() const;

 private:
  struct Core;
  explicit ExchangeServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_EXCHANGE_SERVER_H_
