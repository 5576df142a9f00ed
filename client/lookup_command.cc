#include <cstdio>

#include "client/commands.h"
#include "client/connection.h"
#include "client/messages.h"
#include "client/prompt_source.h"

namespace deltafill::client {

int RunLookup(const LookupOptions& options) {
  const std::optional<PromptContent> prompt = ReadPromptOrSay(options.prompt, true);
  if (!prompt) return 2;
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  v1::LookupRequest request;
  request.set_model(options.model);
  SetPrompt(*prompt, request.mutable_prompt());
  v1::LookupResponse response;
  const grpc::Status status = connection.stub().Lookup(&context, request, &response);
  if (!status.ok()) return connection.Fail(status);
  if (options.server.json) {
    PrintJson({{"tokens", response.tokens()},
               {"boundary", response.boundary()},
               {"state", response.state()},
               {"miss_reason", response.miss_reason()}});
  } else {
    std::printf("boundary  %llu of %llu tokens\n",
                static_cast<unsigned long long>(response.boundary()),
                static_cast<unsigned long long>(response.tokens()));
    if (!response.state().empty()) std::printf("state     %s\n", response.state().c_str());
    if (!response.miss_reason().empty())
      std::printf("miss      %s\n", response.miss_reason().c_str());
  }
  return 0;
}

}  // namespace deltafill::client
