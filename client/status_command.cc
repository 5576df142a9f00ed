#include <cstdio>

#include "client/commands.h"
#include "client/connection.h"
#include "client/messages.h"

namespace deltafill::client {
namespace {

Json ToJson(const v1::ServerInfo& server) {
  Json models = Json::array();
  for (const auto& model : server.models()) {
    models.push_back({{"name", model.name()},
                      {"fingerprint", model.fingerprint()},
                      {"numerics", model.numerics()},
                      {"vocabulary", model.vocabulary()},
                      {"layers", model.layers()},
                      {"tokenizer", model.tokenizer()},
                      {"state_bytes", model.state_bytes()}});
  }
  Json workers = Json::array();
  for (const auto& worker : server.workers()) {
    workers.push_back({{"name", worker.name()},
                       {"device", worker.device()},
                       {"status", worker.status()},
                       {"ranges_queued", worker.ranges_queued()},
                       {"decodes_running", worker.decodes_running()}});
  }
  const auto& store = server.store();
  return {{"version", server.version()},
          {"models", std::move(models)},
          {"workers", std::move(workers)},
          {"store",
           {{"states", store.states()},
            {"bytes", store.bytes()},
            {"budget_bytes", store.budget_bytes()},
            {"evicted_states", store.evicted_states()},
            {"quarantined_parts", store.quarantined_parts()},
            {"determinism_mismatches", store.determinism_mismatches()}}},
          {"prompts_running", server.prompts_running()},
          {"prompts_queued", server.prompts_queued()}};
}

}  // namespace

int RunStatus(const StatusOptions& options) {
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  v1::ServerInfo server;
  const grpc::Status status = connection.stub().GetServerInfo(&context, {}, &server);
  if (!status.ok()) return connection.Fail(status);
  if (options.server.json) {
    PrintJson(ToJson(server));
  } else {
    std::printf("%s\n", ToJson(server).dump(2).c_str());
  }
  return 0;
}

}  // namespace deltafill::client
