// The server on the client port. Start it last: when it listens, the service is ready.
#ifndef DELTAFILL_COORDINATOR_FRONT_FRONT_SERVER_H_
#define DELTAFILL_COORDINATOR_FRONT_FRONT_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/front/server_tls.h"
#include "coordinator/front/tenant_resolver.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct FrontServerOptions {
  std::string listen;                        // host:port; port 0: any free one. Or unix:PATH
  std::unique_ptr<TenantResolver> resolver;  // null: NewTrustingResolver()
  TlsFiles tls;
};

class FrontServer {
 public:
  virtual ~FrontServer() = default;  // Stop(0) if it was not called

  // host:port with the port that is really listened on.
  virtual const std::string& address() const = 0;

  // What the health service answers from now on: SERVING, as at the start, or NOT_SERVING. Calls
  // are taken all the same. Thread-safe.
  virtual void SetServing(bool serving) = 0;

  // Takes no new calls, cancels those that run, waits for them; after `grace` the connections are
  // cut. The engine must still run. Once; thread-safe.
  virtual void Stop(std::chrono::milliseconds grace) = 0;
};

// Serves PrefillService, health and reflection. store and engine must outlive the server.
// FAILED_PRECONDITION for a listen address that CheckListenAddress refuses; INVALID_ARGUMENT for
// TLS files that LoadServerCredentials refuses; UNAVAILABLE if the address cannot be bound.
absl::StatusOr<std::unique_ptr<FrontServer>> StartFrontServer(FrontServerOptions options,
                                                              StateStore& store,
                                                              PromptEngine& engine);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_FRONT_SERVER_H_
