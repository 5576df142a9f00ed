#include <chrono>
#include <cstdio>

#include "client/commands.h"
#include "client/connection.h"
#include "client/messages.h"
#include "client/prompt_source.h"

namespace deltafill::client {
namespace {

v1::DecodeRequest MakeRequest(const DecodeOptions& options, const PromptContent& prompt) {
  v1::DecodeRequest request;
  request.set_model(options.model);
  request.set_state(options.state);
  SetPrompt(prompt, request.mutable_prompt());
  request.set_max_tokens(options.max_tokens);
  request.mutable_sampling()->set_temperature(options.temperature);
  request.mutable_sampling()->set_top_p(options.top_p);
  request.mutable_sampling()->set_seed(options.seed);
  request.mutable_stop_ids()->Add(options.stop_ids.begin(), options.stop_ids.end());
  request.set_save_state(options.save_state);
  request.set_ignore_eos(options.ignore_eos);
  return request;
}

}  // namespace

int RunDecode(const DecodeOptions& options) {
  const std::optional<PromptContent> prompt =
      ReadPromptOrSay(options.prompt, /*or_standard_input=*/options.state.empty());
  if (!prompt) return 2;
  const auto started = std::chrono::steady_clock::now();
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  auto stream = connection.stub().Decode(&context, MakeRequest(options, *prompt));
  v1::DecodeEvent event;
  v1::DecodeDone done;
  Json ids = Json::array();
  std::string text;
  while (stream->Read(&event)) {
    if (event.has_token()) {
      ids.push_back(event.token().id());
      text += event.token().text();
      if (!options.server.json) {
        const std::string& piece = event.token().text();
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        std::fflush(stdout);
      }
    }
    if (event.has_done()) done = event.done();
  }
  const grpc::Status status = stream->Finish();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
  if (!options.server.json && !text.empty()) std::printf("\n");
  if (!status.ok()) return connection.Fail(status);
  if (options.server.json) {
    PrintJson({{"tokens", std::move(ids)},
               {"text", text},
               {"finish_reason", done.finish_reason()},
               {"state", done.state()},
               {"elapsed_s", elapsed.count()},
               {"usage", ToJson(done.usage())},
               {"timings", ToJson(done.timings())}});
    return 0;
  }
  if (text.empty()) std::printf("%s\n", ids.dump().c_str());
  if (!done.state().empty()) std::fprintf(stderr, "state %s\n", done.state().c_str());
  return 0;
}

}  // namespace deltafill::client
