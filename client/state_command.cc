// state list, show, verify, pin, unpin, delete.
#include <cstdio>

#include "client/commands.h"
#include "client/connection.h"
#include "client/messages.h"

namespace deltafill::client {
namespace {

void Print(const v1::StateDescription& state) {
  std::printf("%s  %llu tokens  %llu bytes%s%s\n", state.state_id().c_str(),
              static_cast<unsigned long long>(state.boundary()),
              static_cast<unsigned long long>(state.bytes()), state.pinned() ? "  pinned" : "",
              state.verified() ? "  verified" : "");
}

int Report(const Connection& connection, const grpc::Status& status, bool json,
           const v1::StateDescription& state) {
  if (!status.ok()) return connection.Fail(status);
  if (json) {
    PrintJson(ToJson(state));
  } else {
    Print(state);
  }
  return 0;
}

int GetState(const StateOptions& options, bool verify) {
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  v1::GetStateRequest request;
  request.set_state(options.state);
  request.set_verify(verify);
  v1::StateDescription state;
  const grpc::Status status = connection.stub().GetState(&context, request, &state);
  return Report(connection, status, options.server.json, state);
}

int SetPinned(const StateOptions& options, bool pinned) {
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  v1::StateRequest request;
  request.set_state(options.state);
  v1::StateDescription state;
  const grpc::Status status = pinned ? connection.stub().PinState(&context, request, &state)
                                     : connection.stub().UnpinState(&context, request, &state);
  return Report(connection, status, options.server.json, state);
}

}  // namespace

int RunStateShow(const StateOptions& options) { return GetState(options, false); }
int RunStateVerify(const StateOptions& options) { return GetState(options, true); }
int RunStatePin(const StateOptions& options) { return SetPinned(options, true); }
int RunStateUnpin(const StateOptions& options) { return SetPinned(options, false); }

int RunStateDelete(const StateOptions& options) {
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  v1::StateRequest request;
  request.set_state(options.state);
  v1::DeleteStateResponse response;
  const grpc::Status status = connection.stub().DeleteState(&context, request, &response);
  if (!status.ok()) return connection.Fail(status);
  if (options.server.json) PrintJson({{"deleted", true}});
  return 0;
}

int RunStateList(const StateListOptions& options) {
  Connection connection(options.server);
  Json states = Json::array();
  std::string page;
  do {
    grpc::ClientContext context;
    if (!connection.Prepare(&context)) return 2;
    v1::ListStatesRequest request;
    request.set_page(page);
    request.set_limit(1000);
    v1::ListStatesResponse response;
    const grpc::Status status = connection.stub().ListStates(&context, request, &response);
    if (!status.ok()) return connection.Fail(status);
    for (const auto& state : response.states()) {
      if (options.server.json) {
        states.push_back(ToJson(state));
      } else {
        Print(state);
      }
    }
    page = response.next_page();
  } while (!page.empty());
  if (options.server.json) PrintJson({{"states", std::move(states)}});
  return 0;
}

}  // namespace deltafill::client
