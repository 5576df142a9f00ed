// The operations of PrefillService, one a file, without gRPC: service.cc calls them on its threads.
// proto/prefill.proto says what each does and which errors it has.
#ifndef DELTAFILL_COORDINATOR_FRONT_OPERATIONS_H_
#define DELTAFILL_COORDINATOR_FRONT_OPERATIONS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/front/prompt_intake.h"
#include "coordinator/front/tenant_salts.h"
#include "coordinator/front/tokenizer_shelf.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::v1 {
class DecodeEvent;
class DecodeRequest;
class DeleteStateResponse;
class FetchStateEvent;
class FetchStateRequest;
class GetServerInfoRequest;
class GetStateRequest;
class ListStatesRequest;
class ListStatesResponse;
class LookupRequest;
class LookupResponse;
class PrefillEvent;
class PrefillRequest;
class ServerInfo;
class StateDescription;
class StateRequest;
}  // namespace deltafill::v1

namespace deltafill::coordinator {

// What all calls share. Thread-safe; store and engine must outlive it.
struct FrontContext {
  FrontContext(StateStore& store, PromptEngine& engine)
      : store(store), engine(engine), salts(store) {}
  StateStore& store;
  PromptEngine& engine;
  TenantSalts salts;
  TokenizerShelf tokenizers;
};

struct Call {
  std::string tenant;
  std::function<bool()> cancelled;  // by the client, its deadline or the server's end
};

// False if the caller is gone.
template <typename Event>
using SendEvent = std::function<bool(const Event&)>;

absl::Status Prefill(FrontContext& context, const Call& call, const v1::PrefillRequest& request,
                     const SendEvent<v1::PrefillEvent>& send);
absl::Status PrefillInPieces(FrontContext& context, const Call& call, const ReceivePiece& receive,
                             const SendEvent<v1::PrefillEvent>& send);
absl::Status Lookup(FrontContext& context, const Call& call, const v1::LookupRequest& request,
                    v1::LookupResponse* response);
absl::Status FetchState(FrontContext& context, const Call& call,
                        const v1::FetchStateRequest& request,
                        const SendEvent<v1::FetchStateEvent>& send);
absl::Status Decode(FrontContext& context, const Call& call, const v1::DecodeRequest& request,
                    const SendEvent<v1::DecodeEvent>& send);
absl::Status ListStates(FrontContext& context, const Call& call,
                        const v1::ListStatesRequest& request, v1::ListStatesResponse* response);
absl::Status GetState(FrontContext& context, const Call& call, const v1::GetStateRequest& request,
                      v1::StateDescription* response);
absl::Status DeleteState(FrontContext& context, const Call& call, const v1::StateRequest& request,
                         v1::DeleteStateResponse* response);
absl::Status SetStatePinned(FrontContext& context, const Call& call,
                            const v1::StateRequest& request, bool pinned,
                            v1::StateDescription* response);
absl::Status GetServerInfo(FrontContext& context, v1::ServerInfo* response);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_OPERATIONS_H_
